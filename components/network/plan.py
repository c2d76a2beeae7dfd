"""Which addresses each zone gets, and which AWS services nodes reach without NAT. Pure: settings in, plain
values out.

The VPC is cut into two halves. The lower one holds eight private slots, the upper one starts with eight
public slots an eighth as large; the rest of the upper half stays free. A zone's slot follows from the zone
itself, its letter (us-east-1a to h) or the number of its id (use1-az1 to az8), so that a zone that is added,
removed or moved in the list never renumbers another zone's subnets: renumbering would replace every subnet
and every node in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

from components.settings import Settings

MAX_ZONES = 8  # AWS's largest region has six zones (a to f)
PRIVATE_EXTRA_BITS = 4  # half of the VPC in eight slots
PUBLIC_EXTRA_BITS = 7  # an eighth of a private slot: NAT gateways only
SMALLEST_SUBNET_PREFIX = 28  # the VPC user guide's limit; AWS keeps 5 addresses of each subnet
LARGEST_VPC_PREFIX = 16
SMALLEST_VPC_PREFIX = SMALLEST_SUBNET_PREFIX - PUBLIC_EXTRA_BITS

# Local zones (us-east-1-atl-1a) and wavelength zones have no NAT gateways and are refused.
_ZONE_NAME = re.compile(r"^[a-z]{2}(-[a-z]+)+-\d([a-h])$")
_ZONE_ID = re.compile(r"^[a-z]+\d-az([1-8])$")


@dataclass(frozen=True)
class ZoneSubnets:
    """The two subnets of one zone, as CIDR blocks."""

    zone: str  # name or id
    private_cidr: str
    public_cidr: str


def is_zone_id(zone: str) -> bool:
    """Whether a zone is told by its id, the same in every account (use1-az1), or by a name (us-east-1a)."""
    return _ZONE_ID.match(zone) is not None


def zone_slot(zone: str) -> int:
    """The slot of an availability zone, 0 for letter a and for az1; ValueError for any other kind of zone."""
    if by_id := _ZONE_ID.match(zone):
        return int(by_id.group(1)) - 1
    if by_name := _ZONE_NAME.match(zone):
        return ord(by_name.group(2)) - ord("a")
    raise ValueError(f"'{zone}' is no availability zone of a region, such as us-east-1a or use1-az1")


def plan_subnets(cidr: str, zones: Sequence[str]) -> tuple[ZoneSubnets, ...]:
    """One private and one public subnet a zone, in the caller's order.

    Raises ValueError for a block that is no network, is larger than /16, or is too small (below /21) to give
    every slot a subnet of at least /28; for a zone named twice; for names and ids in one list, of which only
    AWS knows whether they are one zone; and for zones that are not regional.
    """
    vpc = IPv4Network(cidr)
    if not LARGEST_VPC_PREFIX <= vpc.prefixlen <= SMALLEST_VPC_PREFIX:
        raise ValueError(
            f"{cidr} does not fit: the block of a VPC is from /{LARGEST_VPC_PREFIX} to /{SMALLEST_VPC_PREFIX}"
        )
    if len(set(zones)) != len(zones):
        raise ValueError(f"a zone is named twice: {', '.join(zones)}")
    if len({is_zone_id(zone) for zone in zones}) > 1:
        raise ValueError(f"some zones are names and some are ids: {', '.join(zones)}")
    lower, upper = vpc.subnets(prefixlen_diff=1)
    private_slots = list(lower.subnets(new_prefix=vpc.prefixlen + PRIVATE_EXTRA_BITS))
    public_block = next(upper.subnets(new_prefix=vpc.prefixlen + PUBLIC_EXTRA_BITS - 3))
    public_slots = list(public_block.subnets(new_prefix=vpc.prefixlen + PUBLIC_EXTRA_BITS))
    return tuple(
        ZoneSubnets(zone, str(private_slots[zone_slot(zone)]), str(public_slots[zone_slot(zone)]))
        for zone in zones
    )


def nat_zones(nat: str, zones: Sequence[str]) -> tuple[str, ...]:
    """The zones that get a NAT gateway: none, the first one, or each."""
    return {"none": (), "single": tuple(zones[:1]), "per-az": tuple(zones)}[nat]


def node_services(settings: Settings) -> tuple[str, ...]:
    """The AWS services besides S3 that a node calls, by the last part of their endpoints' names.

    Left out, since nodes do not call them: KMS and STS (S3 and the metadata service do), EC2, and FSx, whose
    data stays in the VPC. Session Manager needs ssm and ssmmessages; ec2messages is of older agents.
    """
    services = ["autoscaling", "logs", "monitoring", "sns", "ssm", "ssmmessages"]
    if settings.secrets:
        services.append("secretsmanager")
    return tuple(sorted(services))


def interface_endpoints(settings: Settings) -> tuple[str, ...]:
    """The services that get an interface endpoint in each zone: what nodes call where there is no NAT, and
    what the configuration adds. None in a VPC that exists already.
    """
    network = settings.network
    if network.existing is not None:
        return ()
    needed = node_services(settings) if network.nat == "none" else ()
    return tuple(sorted({*needed, *network.endpoints}))
