"""Which addresses each zone gets. Pure: names in, CIDR blocks out.

The VPC is cut into two halves. The lower one holds eight private slots, the upper one starts with eight
public slots an eighth as large; the rest of the upper half stays free. A zone's slot follows from the zone's
own letter (a to h), so that a zone that is added, removed or moved in the list never renumbers another zone's
subnets: renumbering would replace every subnet and every node in it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

MAX_ZONES = 8  # AWS's largest region has six zones (a to f)
PRIVATE_EXTRA_BITS = 4  # half of the VPC in eight slots
PUBLIC_EXTRA_BITS = 7  # an eighth of a private slot: NAT gateways only
SMALLEST_SUBNET_PREFIX = 28  # the VPC user guide's limit; AWS keeps 5 addresses of each subnet
LARGEST_VPC_PREFIX = 16
SMALLEST_VPC_PREFIX = SMALLEST_SUBNET_PREFIX - PUBLIC_EXTRA_BITS

# Local zones (us-east-1-atl-1a) and wavelength zones have no NAT gateways and are refused.
_ZONE = re.compile(r"^[a-z]{2}(-[a-z]+)+-\d([a-h])$")

# What user data and the agent call besides S3, and Session Manager: interface endpoints where there is no NAT.
NODE_SERVICES = ("autoscaling", "logs", "monitoring", "ssm", "ssmmessages")


@dataclass(frozen=True)
class ZoneSubnets:
    """The two subnets of one zone, as CIDR blocks."""

    zone: str
    private_cidr: str
    public_cidr: str


def zone_slot(zone: str) -> int:
    """The slot of an availability zone, 0 for letter a; ValueError for any other kind of zone."""
    match = _ZONE.match(zone)
    if match is None:
        raise ValueError(f"'{zone}' is no availability zone of a region, such as us-east-1a")
    return ord(match.group(2)) - ord("a")


def plan_subnets(cidr: str, zones: Sequence[str]) -> tuple[ZoneSubnets, ...]:
    """One private and one public subnet a zone, in the caller's order.

    Raises ValueError for a block that is no network, is larger than /16, or is too small (below /21) to give
    every slot a subnet of at least /28; for a zone named twice; and for zones that are not regional.
    """
    vpc = IPv4Network(cidr)
    if not LARGEST_VPC_PREFIX <= vpc.prefixlen <= SMALLEST_VPC_PREFIX:
        raise ValueError(
            f"{cidr} does not fit: the block of a VPC is from /{LARGEST_VPC_PREFIX} to /{SMALLEST_VPC_PREFIX}"
        )
    if len(set(zones)) != len(zones):
        raise ValueError(f"a zone is named twice: {', '.join(zones)}")
    lower, upper = vpc.subnets(prefixlen_diff=1)
    private_slots = list(lower.subnets(new_prefix=vpc.prefixlen + PRIVATE_EXTRA_BITS))
    public_block = next(upper.subnets(new_prefix=vpc.prefixlen + PUBLIC_EXTRA_BITS - 3))
    public_slots = list(public_block.subnets(new_prefix=vpc.prefixlen + PUBLIC_EXTRA_BITS))
    return tuple(
        ZoneSubnets(zone, str(private_slots[zone_slot(zone)]), str(public_slots[zone_slot(zone)]))
        for zone in zones
    )
