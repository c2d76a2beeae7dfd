"""What the network's values may be together, and what of them fits a VPC that exists already."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from ipaddress import IPv4Network

from components.catalog import REGIONS, nearest
from components.catalog.endpoint_services import ENDPOINT_SERVICES

from .faults import Fault, essential, named_twice
from .model import Settings
from .type_rules import addresses_per_node_of

PRIVATE_RANGES = tuple(IPv4Network(block) for block in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"))
# A VPC is at most a /16 and at least a /28 (VPC user guide, 2026); below /21 a zone's public slot would be
# smaller than AWS's least subnet, /28. The network plan cuts the block and names the same limits; a test
# compares them.
LARGEST_VPC_PREFIX, SMALLEST_VPC_PREFIX, PRIVATE_EXTRA_BITS = 16, 21, 4
SMALLEST_EXISTING_PREFIX = 28
RESERVED_ADDRESSES = 5  # of every subnet, VPC user guide
ZONES = ("network", "availabilityZones")


@essential
def cidr_is_a_private_block(s: Settings) -> Iterator[Fault]:
    """Private addresses of RFC 1918; /16 is the largest VPC, /21 the least with room for a subnet in every zone."""
    path, cidr = ("network", "cidr"), s.network.cidr
    try:
        block = IPv4Network(cidr, strict=False)
    except ValueError:
        yield Fault(path, f"'{cidr}' is no IPv4 block", "write one such as 10.42.0.0/16")
        return
    if str(block) != cidr:
        yield Fault(
            path, f"'{cidr}' has bits set below its prefix", "write the block's first address", str(block)
        )
    if block.prefixlen < LARGEST_VPC_PREFIX:
        yield Fault(path, f"{cidr} is larger than AWS allows", f"take a /{LARGEST_VPC_PREFIX} or smaller")
    if s.network.existing is not None:
        if block.prefixlen > SMALLEST_EXISTING_PREFIX:
            yield Fault(path, f"{cidr} is smaller than any VPC", "write the range of the existing VPC")
        return  # other people's VPCs may have other addresses
    if not any(block.subnet_of(private) for private in PRIVATE_RANGES):
        yield Fault(
            path, f"{cidr} is not private", "take it from 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
        )
    if block.prefixlen > SMALLEST_VPC_PREFIX:
        yield Fault(
            path,
            f"{cidr} is too small for a public and a private subnet in every zone",
            f"take a /{SMALLEST_VPC_PREFIX} or larger, up to /{LARGEST_VPC_PREFIX}",
        )


def zones_have_room_for_their_nodes(s: Settings) -> Iterator[Fault]:
    """A node takes one address, with `efaLayout: bandwidth-optimized` 8 (p5, p6-b200) or 17 (p6-b300)."""
    if s.network.existing is not None:
        return  # how large its subnets are, only the account knows
    try:
        prefix = s.network.network.prefixlen
    except ValueError:
        return  # told by cidr_is_a_private_block
    if not LARGEST_VPC_PREFIX <= prefix <= SMALLEST_VPC_PREFIX:
        return
    room = 2 ** (32 - prefix - PRIVATE_EXTRA_BITS) - RESERVED_ADDRESSES
    needed: Counter[str] = Counter()
    for group in s.gpu_groups:
        if group.zones is not None and len(group.zones) == 1:
            needed[group.zones[0]] += group.max_nodes * addresses_per_node_of(group, s)
    for zone, addresses in needed.items():
        if addresses > room:
            yield Fault(
                ("network", "cidr"),
                f"{s.network.cidr} is too small: {zone} may need {addresses} addresses and has {room}",
                "take a larger block or fewer nodes",
            )


@essential
def zones_are_of_the_region(s: Settings) -> Iterator[Fault]:
    """Availability zones by name (us-east-1a) or id (use1-az1); local and wavelength zones have no EFA."""
    if s.region not in REGIONS:
        return  # told by region_is_known; one typo is one fault
    prefix = zone_id_prefix(s.region)
    for place, zone in enumerate(s.network.availability_zones):
        path = (*ZONES, place)
        if re.fullmatch(rf"{re.escape(s.region)}[a-h]|{prefix}-az[1-8]", zone):
            continue
        if zone.startswith((f"{s.region}-", f"{prefix}-")):
            yield Fault(
                path,
                f"'{zone}' is a local or wavelength zone",
                f"use the region's own zones, such as {s.region}a or {prefix}-az1: local zones have no NAT "
                "gateway and no EFA",
            )
        else:
            yield Fault(
                path, f"'{zone}' is no zone of {s.region}", f"write it like {s.region}a or {prefix}-az1"
            )
    yield from named_twice(s.network.availability_zones, ZONES, ())


@essential
def zones_are_all_names_or_all_ids(s: Settings) -> Iterator[Fault]:
    """A name is each account's own, an id is the same in all: only AWS knows which of both are one zone."""
    zones = s.network.availability_zones
    for place, zone in enumerate(zones):
        if _is_id(zone) != _is_id(zones[0]):
            first, other = ("an id", "a name") if _is_id(zones[0]) else ("a name", "an id")
            yield Fault(
                (*ZONES, place),
                f"'{zone}' is {other}, '{zones[0]}' is {first}",
                "write all zones by name or all by id, here and in the groups",
            )
            return


@essential
def existing_vpc_has_a_subnet_in_each_zone(s: Settings) -> Iterator[Fault]:
    """A group in a zone without a subnet could start no node."""
    if s.network.existing is None:
        return
    path, subnets = ("network", "existing", "subnetIds"), s.network.existing.subnet_ids
    zones = s.network.availability_zones
    for zone in zones:
        if zone not in subnets:
            yield Fault(path, f"no subnet in {zone}", "add one, or take the zone out of availabilityZones")
    for zone, subnet in subnets.items():
        at = (*path, zone)
        if zone not in zones:
            yield Fault(
                at,
                f"'{zone}' is not a zone of the network",
                f"one of {', '.join(zones)}",
                nearest(zone, zones),
            )
        if not re.fullmatch(r"subnet-([0-9a-f]{8}|[0-9a-f]{17})", subnet):
            yield Fault(at, f"'{subnet}' is no subnet id", "write it like subnet-0123456789abcdef0")
    for subnet, count in Counter(subnets.values()).items():
        if count > 1:
            shared = " and ".join(zone for zone in subnets if subnets[zone] == subnet)
            yield Fault(
                path, f"{subnet} is the subnet of {shared}", "a subnet lies in one zone: name its own"
            )


def existing_vpc_keeps_its_ways_out(s: Settings) -> Iterator[Fault]:
    """In a VPC of somebody else's the stack makes no gateway, no endpoint and no flow log."""
    if s.network.existing is None:
        return
    for key, field in (
        ("nat", "nat"),
        ("endpoints", "endpoints"),
        ("flowLogRetentionDays", "flow_log_retention_days"),
    ):
        if field in s.network.model_fields_set:
            yield Fault(
                ("network", key), "an existing VPC does not take it", "remove it: that VPC has its own"
            )


def existing_vpc_tells_its_range(s: Settings) -> Iterator[Fault]:
    """The metrics port is open to this range; the default would be that of another VPC."""
    if s.network.existing is not None and "cidr" not in s.network.model_fields_set:
        yield Fault(("network", "cidr"), "missing", f"write the range of {s.network.existing.vpc_id}")


def endpoint_services_are_known(s: Settings) -> Iterator[Fault]:
    """Interface endpoints with a private DNS name, by the last part of `com.amazonaws.<region>.<service>`."""
    path = ("network", "endpoints")
    for place, service in enumerate(s.network.endpoints):
        if service == "s3":
            yield Fault(
                (*path, place), "S3 has its gateway endpoint in every stack", "remove it: that one is free"
            )
        elif service not in ENDPOINT_SERVICES.names:
            yield Fault(
                (*path, place),
                f"'{service}' is no service with an interface endpoint (as of {ENDPOINT_SERVICES.as_of})",
                "write the last part of its service name, such as ecr.api; suppress this for a newer one",
                nearest(service, ENDPOINT_SERVICES.names),
            )
    yield from named_twice(s.network.endpoints, path, ())


def zone_id_prefix(region: str) -> str:
    """How the ids of a region's zones begin: use1 for us-east-1, apne1 for ap-northeast-1."""
    country, *words, number = region.split("-")
    short = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}
    return country + "".join(short.get(word, word[0]) for word in words) + number


def _is_id(zone: str) -> bool:
    return re.search(r"-az\d$", zone) is not None


RULES = (
    cidr_is_a_private_block,
    zones_have_room_for_their_nodes,
    zones_are_of_the_region,
    zones_are_all_names_or_all_ids,
    existing_vpc_has_a_subnet_in_each_zone,
    existing_vpc_keeps_its_ways_out,
    existing_vpc_tells_its_range,
    endpoint_services_are_known,
)
