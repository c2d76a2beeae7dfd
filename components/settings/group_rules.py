"""What the values of one GPU group may be together, over the catalog's facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from components.catalog import nearest

from . import (
    capacity_rules,
    cost_rules,
    image_rules,
    pinned_image_rules,
    purchase_rules,
    reminder_rules,
    schedule_rules,
    storage_rules,
    type_rules,
)
from .faults import Fault, Path, essential
from .group_model import GpuGroupSettings
from .model import Settings
from .type_rules import known_types, zones_of

GroupRule = Callable[[GpuGroupSettings, Path, Settings], Iterator[Fault]]


@essential
def zones_are_of_the_network(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A group's zones are zones of the network, each named once."""
    zones = settings.network.availability_zones
    for place, zone in enumerate(group.zones or ()):
        path = (*at, "zones", place)
        if zone not in zones:
            yield Fault(
                path,
                f"'{zone}' is not a zone of the network",
                f"one of {', '.join(zones)}",
                nearest(zone, zones),
            )
        if zone in (group.zones or ())[:place]:
            yield Fault(path, f"'{zone}' is there twice", "name each zone once")


def efa_has_one_zone(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """EFA traffic ends at the zone's border (EC2 user guide, 2026)."""
    if group.efa == "on":
        yield from _one_zone(group, at, settings, "EFA")


def cluster_placement_has_one_zone(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A cluster placement group lies in one zone (EC2 user guide, 2026)."""
    if group.placement == "cluster":
        yield from _one_zone(group, at, settings, "a cluster placement")


def _one_zone(group: GpuGroupSettings, at: Path, settings: Settings, why: str) -> Iterator[Fault]:
    zones = zones_of(group, settings)
    count = len(set(zones))
    if count > 1:
        yield Fault(
            (*at, "zones"), f"{count} zones for a group with {why}", f"name one, such as [{zones[0]}]"
        )


def placement_is_possible(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """The type may be in a cluster placement group (EC2 DescribeInstanceTypes)."""
    for _, type_ in known_types(group):
        if group.placement == "cluster" and not type_.cluster_placement:
            yield Fault(
                (*at, "placement"), f"{type_.name} cannot be in a cluster placement group", "write none"
            )


def min_is_not_above_max(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """`minNodes` is not above `maxNodes`."""
    if group.min_nodes > group.max_nodes:
        yield Fault(
            (*at, "minNodes"),
            f"{group.min_nodes} is above maxNodes {group.max_nodes}",
            f"at most {group.max_nodes}, or raise maxNodes",
        )


def desired_is_within_bounds(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """`desiredNodes` lies between `minNodes` and `maxNodes`."""
    desired = group.desired_nodes
    if desired is None or group.min_nodes > group.max_nodes:
        return
    if not group.min_nodes <= desired <= group.max_nodes:
        yield Fault(
            (*at, "desiredNodes"),
            f"{desired} is outside minNodes and maxNodes",
            f"from {group.min_nodes} to {group.max_nodes}",
        )


def purchase_is_consistent(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """What only spot nodes have is given where spot nodes are bought."""
    purchase = group.purchase
    if purchase.spot_percent == 0 and purchase.max_price_usd_per_hour is not None:
        yield Fault(
            (*at, "purchase", "maxPriceUsdPerHour"),
            "a price limit for spot nodes, but spotPercent is 0",
            "remove it or raise spotPercent",
        )
    if purchase.spot_percent > 0 and purchase.on_demand_base >= group.max_nodes:
        yield Fault(
            (*at, "purchase", "onDemandBase"),
            f"{purchase.on_demand_base} of at most {group.max_nodes} nodes are on demand, so spotPercent "
            f"{purchase.spot_percent} never applies",
            "lower it below maxNodes or write spotPercent: 0",
        )


def types_can_be_bought_so(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """The type is sold the way the group buys it (EC2 DescribeInstanceTypes, supported usage classes)."""
    for place, type_ in known_types(group):
        if group.purchase.spot_percent > 0 and "spot" not in type_.purchase_options:
            yield Fault(
                (*at, "instanceTypes", place), f"{type_.name} is not sold as spot", "write spotPercent: 0"
            )


RULES: tuple[GroupRule, ...] = (
    *type_rules.RULES,
    zones_are_of_the_network,
    efa_has_one_zone,
    cluster_placement_has_one_zone,
    min_is_not_above_max,
    desired_is_within_bounds,
    purchase_is_consistent,
    types_can_be_bought_so,
    placement_is_possible,
    *purchase_rules.RULES,
    *capacity_rules.RULES,
    *schedule_rules.RULES,
    *image_rules.RULES,
    *pinned_image_rules.RULES,
    *storage_rules.GROUP_RULES,
    *cost_rules.GROUP_RULES,
    *reminder_rules.RULES,
)
