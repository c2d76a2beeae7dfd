"""What the values of one GPU group may be together, over the catalog's facts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from components.catalog import (
    IMAGE_PROFILES,
    INSTANCE_TYPES,
    REGIONS,
    InstanceType,
    UnknownName,
    image_profile,
    instance_type,
    nearest,
)

from . import storage_rules
from .faults import Fault, Path
from .group_model import GpuGroupSettings
from .model import Settings

GroupRule = Callable[[GpuGroupSettings, Path, Settings], Iterator[Fault]]


def _known_types(group: GpuGroupSettings) -> list[tuple[int, InstanceType]]:
    """The group's instance types that the catalog knows, with their places in the list."""
    return [
        (n, INSTANCE_TYPES[name]) for n, name in enumerate(group.instance_types) if name in INSTANCE_TYPES
    ]


def instance_types_are_known(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    for place, name in enumerate(group.instance_types):
        path = (*at, "instanceTypes", place)
        try:
            instance_type(name)
        except UnknownName as unknown:
            yield Fault(
                path,
                f"unknown instance type '{name}'",
                f"one of {', '.join(INSTANCE_TYPES)}",
                unknown.nearest,
            )
        if name in group.instance_types[:place]:
            yield Fault(path, f"'{name}' is there twice", "name each type once")


def instance_types_are_offered(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    for place, type_ in _known_types(group):
        if settings.region in REGIONS and settings.region not in type_.regions:
            yield Fault(
                (*at, "instanceTypes", place),
                f"{type_.name} is not offered in {settings.region} (as of {type_.as_of})",
                f"offered in {', '.join(type_.regions)}",
            )


def instance_types_are_alike(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """One template and one promise of GPUs serve the whole group."""
    types = _known_types(group)
    for place, type_ in types[1:]:
        first, path = types[0][1], (*at, "instanceTypes", place)
        remedy = "put it into a group of its own"
        if type_.architecture != first.architecture:
            yield Fault(
                path, f"{type_.name} is {type_.architecture}, {first.name} is {first.architecture}", remedy
            )
        if (type_.gpu.model, type_.gpu.count) != (first.gpu.model, first.gpu.count):
            yield Fault(
                path,
                f"{type_.name} has {type_.gpu.count} {type_.gpu.model}, "
                f"{first.name} has {first.gpu.count} {first.gpu.model}",
                remedy,
            )
        if _efa_is_wanted(group, types, settings) and type_.efa_layout != first.efa_layout:
            yield Fault(
                path,
                f"{type_.name} has another layout of EFA interfaces than {first.name}",
                "put it into a group of its own, or write efa: off",
            )


def _efa_is_wanted(
    group: GpuGroupSettings, types: list[tuple[int, InstanceType]], settings: Settings
) -> bool:
    if group.efa != "auto":
        return group.efa == "on"
    return len(_zones(group, settings)) == 1 and all(type_.max_efa_interfaces > 0 for _, type_ in types)


def _zones(group: GpuGroupSettings, settings: Settings) -> list[str]:
    return group.zones if group.zones is not None else settings.network.availability_zones


def zones_are_of_the_network(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
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


def efa_has_types_that_carry_it(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    if group.efa != "on":
        return
    for _, type_ in _known_types(group):
        if type_.max_efa_interfaces == 0:
            capable = [t.name for t in INSTANCE_TYPES.values() if t.max_efa_interfaces > 0]
            yield Fault(
                (*at, "efa"),
                f"on, but {type_.name} has no EFA",
                f"write auto or off, or use one of {', '.join(capable)}",
            )


def efa_has_one_zone(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """EFA traffic ends at the zone's border (EC2 user guide, 2026)."""
    if group.efa == "on":
        yield from _one_zone(group, at, settings, "EFA")


def cluster_placement_has_one_zone(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A cluster placement group lies in one zone (EC2 user guide, 2026)."""
    if group.placement == "cluster":
        yield from _one_zone(group, at, settings, "a cluster placement")


def _one_zone(group: GpuGroupSettings, at: Path, settings: Settings, why: str) -> Iterator[Fault]:
    zones = group.zones if group.zones is not None else settings.network.availability_zones
    count = len(set(zones))
    if count > 1:
        yield Fault(
            (*at, "zones"), f"{count} zones for a group with {why}", f"name one, such as [{zones[0]}]"
        )


def placement_is_possible(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    for _, type_ in _known_types(group):
        if group.placement == "cluster" and not type_.cluster_placement:
            yield Fault(
                (*at, "placement"), f"{type_.name} cannot be in a cluster placement group", "write none"
            )


def min_is_not_above_max(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    if group.min_nodes > group.max_nodes:
        yield Fault(
            (*at, "minNodes"),
            f"{group.min_nodes} is above maxNodes {group.max_nodes}",
            f"at most {group.max_nodes}, or raise maxNodes",
        )


def desired_is_within_bounds(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
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
    for place, type_ in _known_types(group):
        if group.purchase.spot_percent > 0 and "spot" not in type_.purchase_options:
            yield Fault(
                (*at, "instanceTypes", place), f"{type_.name} is not sold as spot", "write spotPercent: 0"
            )


def image_has_one_source(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    given = [
        name
        for name, value in (("amiId", group.image.ami_id), ("ssmParameter", group.image.ssm_parameter))
        if value is not None
    ]
    if len(given) != 1:
        wrong = "both amiId and ssmParameter" if given else "neither amiId nor ssmParameter"
        yield Fault((*at, "image"), wrong, "give exactly one of them")


def image_profile_is_known(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    try:
        image_profile(group.image.profile)
    except UnknownName as unknown:
        yield Fault(
            (*at, "image", "profile"),
            f"unknown image profile '{group.image.profile}'",
            f"one of {', '.join(IMAGE_PROFILES)}",
            unknown.nearest,
        )


def image_serves_the_types(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    profile = IMAGE_PROFILES.get(group.image.profile)
    if profile is None:
        return  # told by image_profile_is_known
    for _, type_ in _known_types(group):
        if not profile.serves(type_):
            able = [name for name, other in IMAGE_PROFILES.items() if other.serves(type_)]
            yield Fault(
                (*at, "image", "profile"),
                f"{profile.name} does not serve {type_.name}",
                f"use {' or '.join(able)}",
            )


RULES: tuple[GroupRule, ...] = (
    instance_types_are_known,
    instance_types_are_offered,
    instance_types_are_alike,
    zones_are_of_the_network,
    efa_has_one_zone,
    cluster_placement_has_one_zone,
    min_is_not_above_max,
    desired_is_within_bounds,
    purchase_is_consistent,
    types_can_be_bought_so,
    efa_has_types_that_carry_it,
    placement_is_possible,
    image_has_one_source,
    image_profile_is_known,
    image_serves_the_types,
    *storage_rules.GROUP_RULES,
)
