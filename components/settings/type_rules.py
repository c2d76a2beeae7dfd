"""What the catalog says about a group's instance types: names, regions and zones, GPUs, EFA and its layout."""

from __future__ import annotations

import re
from collections.abc import Iterator

from components.catalog import (
    INSTANCE_TYPES,
    NAMES_WITHOUT_FACTS,
    REGIONS,
    InstanceType,
    UnknownName,
    addresses_per_node,
    instance_type,
    interfaces_of,
    layout_faults,
)

from .faults import Fault, Path, essential, info, warning
from .group_model import GpuGroupSettings
from .model import Settings


def known_types(group: GpuGroupSettings) -> list[tuple[int, InstanceType]]:
    """The group's instance types that the catalog knows, with their places in the list."""
    return [
        (n, INSTANCE_TYPES[name]) for n, name in enumerate(group.instance_types) if name in INSTANCE_TYPES
    ]


def zones_of(group: GpuGroupSettings, settings: Settings) -> list[str]:
    """The zones in which the group may launch."""
    return group.zones if group.zones is not None else settings.network.availability_zones


def efa_is_wanted(group: GpuGroupSettings, settings: Settings) -> bool:
    """``auto`` is on where every type has EFA and there is one zone, as the plan has it; a test compares them."""
    if group.efa != "auto":
        return group.efa == "on"
    types = known_types(group)
    return len(zones_of(group, settings)) == 1 and all(type_.max_efa_interfaces > 0 for _, type_ in types)


def addresses_per_node_of(group: GpuGroupSettings, settings: Settings) -> int:
    """Addresses that one node of the group takes from its subnet, with the type that takes the most."""
    efa = efa_is_wanted(group, settings)
    return max(
        (addresses_per_node(interfaces_of(t, efa, group.efa_layout)) for _, t in known_types(group)),
        default=1,
    )


@essential
def instance_types_are_known(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """`make catalog` lists the instance types that are known, with their facts and prices."""
    for place, name in enumerate(group.instance_types):
        path = (*at, "instanceTypes", place)
        family = name.split(".")[0].lower()
        try:
            instance_type(name)
        except UnknownName as unknown:
            if family in NAMES_WITHOUT_FACTS:
                yield Fault(path, f"no specification of {family} was found", "use another type")
                continue
            sizes = [type_.name for type_ in INSTANCE_TYPES.values() if type_.family == family]
            families = sorted({type_.family for type_ in INSTANCE_TYPES.values()})
            remedy = f"one of {', '.join(sizes or families)}; `make catalog` lists all"
            yield Fault(path, f"unknown instance type '{name}'", remedy, unknown.nearest)
        if name in group.instance_types[:place]:
            yield Fault(path, f"'{name}' is there twice", "name each type once")


def instance_types_are_offered(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """EC2 DescribeInstanceTypeOfferings of the day that the catalog names."""
    region = settings.region
    for place, type_ in known_types(group):
        path = (*at, "instanceTypes", place)
        if region not in REGIONS or type_.regions is None:
            continue
        if region not in type_.regions:
            yield Fault(
                path,
                f"{type_.name} is not offered in {region} (as of {type_.as_of})",
                f"offered in {', '.join(type_.regions)}",
            )
        elif type_.zone_ids.get(region) == ():
            yield Fault(
                path,
                f"{type_.name} is offered in a local zone of {region} only (as of {type_.as_of})",
                "the network has the region's own zones: use another type",
            )


@warning
def zone_offers_the_type(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A zone that does not offer the type never launches one. Zone names are each account's own, ids are not."""
    zones = zones_of(group, settings)
    for _, type_ in known_types(group):
        offered = type_.zone_ids.get(settings.region)
        if not offered:
            continue  # told by instance_types_are_offered, or not known
        where = f"as of {type_.as_of} {settings.region} offers it in {', '.join(offered)}"
        for place, zone in enumerate(zones):
            if _is_zone_id(zone) and zone not in offered:
                at_zone = (*at, "zones", place) if group.zones is not None else (*at, "zones")
                yield Fault(at_zone, f"{zone} does not offer {type_.name}", where)
        missing = len(zones) - len(offered)
        if missing > 0 and not any(_is_zone_id(zone) for zone in zones):
            yield Fault(
                (*at, "zones"),
                f"at least {missing} of {len(zones)} zones cannot offer {type_.name}",
                f"{where}: name the zones of these ids, which `aws ec2 describe-availability-zones` shows",
            )


@info
def few_zones_offer_the_type(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Told where zones are named by letter and at most half of the region's zones offer the type."""
    region, zones = settings.region, zones_of(group, settings)
    of_region = {zone for type_ in INSTANCE_TYPES.values() for zone in type_.zone_ids.get(region, ())}
    for _, type_ in known_types(group):
        offered = type_.zone_ids.get(region) or ()
        if any(_is_zone_id(zone) for zone in zones) or len(zones) > len(offered):
            continue  # told by zone_offers_the_type, or not known
        if len(offered) * 2 <= len(of_region):
            yield Fault(
                (*at, "zones"),
                f"{type_.name} is offered in {len(offered)} of {len(of_region)} zones of {region}: "
                f"{', '.join(offered)} (as of {type_.as_of})",
                f"make sure that {' and '.join(zones)} {'is one' if len(zones) == 1 else 'are some'} of them in "
                "your account, or write zone ids",
            )


def _is_zone_id(zone: str) -> bool:
    return re.search(r"-az\d$", zone) is not None


def instance_types_are_alike(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """One image and one promise of GPUs serve the whole group, and its nodes must reach each other."""
    types = known_types(group)
    efa = efa_is_wanted(group, settings)
    for place, type_ in types[1:]:
        first, path = types[0][1], (*at, "instanceTypes", place)
        remedy = "put it into a group of its own"
        if type_.architecture != first.architecture:
            yield Fault(
                path, f"{type_.name} is {type_.architecture}, {first.name} is {first.architecture}", remedy
            )
        if type_.gpu.text != first.gpu.text:
            yield Fault(path, f"{type_.name} has {type_.gpu.text}, {first.name} has {first.gpu.text}", remedy)
        if efa and (type_.efa_reaches_own_type_only or first.efa_reaches_own_type_only):
            alone, other = (type_, first) if type_.efa_reaches_own_type_only else (first, type_)
            yield Fault(
                path,
                f"EFA of {alone.name} reaches no node of another type, such as {other.name}",
                f"{remedy}, or write efa: off",
            )


def efa_has_types_that_carry_it(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """The least size with EFA: 8xlarge of most G families, p5.4xlarge, every larger P (EC2 user guide, 2026)."""
    if group.efa != "on":
        return
    for _, type_ in known_types(group):
        if type_.max_efa_interfaces == 0:
            capable = [
                other.name
                for other in INSTANCE_TYPES.values()
                if other.family == type_.family and other.max_efa_interfaces > 0
            ]
            remedy = f"use one of {', '.join(capable)}" if capable else f"no size of {type_.family} has it"
            yield Fault((*at, "efa"), f"on, but {type_.name} has no EFA", f"write auto or off; {remedy}")


def interfaces_are_ones_that_ec2_takes(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """Card and device of each interface, EFAs a card and a type, and a first interface with an address."""
    for place, type_ in known_types(group):
        efa = efa_is_wanted(group, settings) and type_.max_efa_interfaces > 0
        for fault in layout_faults(interfaces_of(type_, efa, group.efa_layout), type_):
            yield Fault((*at, "instanceTypes", place), fault, "correct the type's row in the catalog")


@warning
def efa_layout_makes_a_difference(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Only p5, p5e, p6-b200 and p6-b300 have a second layout (EC2 user guide, efa-acc-inst-types, 2026)."""
    if group.efa_layout == "ip-optimized" or not known_types(group):
        return
    remedy = "remove it"
    if not efa_is_wanted(group, settings):
        yield Fault((*at, "efaLayout"), "the group's nodes have no EFA, and one interface each", remedy)
    elif not any(type_.bandwidth_cards for _, type_ in known_types(group)):
        names = " and ".join(type_.name for _, type_ in known_types(group))
        yield Fault((*at, "efaLayout"), f"{names}: one address has the whole IP bandwidth", remedy)


RULES = (
    instance_types_are_known,
    instance_types_are_offered,
    zone_offers_the_type,
    few_zones_offer_the_type,
    instance_types_are_alike,
    efa_has_types_that_carry_it,
    efa_layout_makes_a_difference,
    interfaces_are_ones_that_ec2_takes,
)
