"""How a group may be bought and placed: spot, fall-back, placement groups."""

from __future__ import annotations

from collections.abc import Iterator

from components.catalog import nearest

from .faults import Fault, Path, essential, warning
from .group_model import GpuGroupSettings
from .model import Settings
from .type_rules import efa_is_wanted, known_types, zones_of


def rebalance_needs_spot(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Only spot nodes are rebalanced (Auto Scaling user guide, Capacity Rebalancing, 2026)."""
    if group.purchase.capacity_rebalance and group.purchase.spot_percent == 0:
        yield Fault(
            (*at, "purchase", "capacityRebalance"),
            "true, but spotPercent is 0",
            "remove it or raise spotPercent",
        )


@warning
def rebalance_disturbs_efa(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A replacement comes while the old node still trains, and then that one is taken out of its world."""
    if group.purchase.capacity_rebalance and efa_is_wanted(group, settings):
        yield Fault(
            (*at, "purchase", "capacityRebalance"),
            "true for a group with EFA: its whole world stops for each recommendation, also where no interruption "
            "follows",
            "remove it",
        )


@warning
def strategy_needs_spot(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """On demand has one strategy here: the types in their order (ParallelCluster: on demand only lowest-price)."""
    if "strategy" in group.purchase.model_fields_set and group.purchase.spot_percent == 0:
        yield Fault(
            (*at, "purchase", "strategy"),
            "a spot strategy, but spotPercent is 0",
            "remove it or raise spotPercent",
        )


@warning
def spot_has_several_pools(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A type in a zone is one pool of spot capacity (aws-parallelcluster#2716: one g4dn, never another)."""
    if group.purchase.spot_percent == 0 or group.fallback_group is not None:
        return
    zones = set(zones_of(group, settings))
    if len(group.instance_types) == 1 and len(zones) == 1:
        yield Fault(
            (*at, "instanceTypes"),
            f"all spot nodes come from one pool, {group.instance_types[0]} in {zones.pop()}",
            "add types with the same GPUs, zones, or a fallbackGroup",
        )


@essential
def fallback_group_is_there(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Another group of the stack; only a group with spot nodes needs one."""
    if group.fallback_group is None:
        return
    path = (*at, "fallbackGroup")
    others = [other.name for other in settings.gpu_groups if other.name != group.name]
    if group.purchase.spot_percent == 0:
        yield Fault(path, "a group without spot nodes has nothing to fall back from", "remove it")
    if group.fallback_group == group.name:
        yield Fault(path, "the group itself", "name another group")
    elif group.fallback_group not in others:
        known = f"one of {', '.join(others)}" if others else "add an on-demand group"
        yield Fault(path, f"no group '{group.fallback_group}'", known, nearest(group.fallback_group, others))


def fallback_group_is_on_demand(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A fall-back to spot, or to a group that falls back itself, would be short when this one is."""
    other = _fallback(group, settings)
    if other is None:
        return
    path = (*at, "fallbackGroup")
    if other.purchase.spot_percent > 0:
        yield Fault(path, f"'{other.name}' buys spot", "name a group with spotPercent: 0")
    if other.fallback_group is not None:
        yield Fault(path, f"'{other.name}' falls back itself", "a chain is not followed: name its last group")
    if other.reservation is not None and other.reservation.kind == "capacity-block":
        yield Fault(path, f"'{other.name}' has nodes for a capacity block's time only", "name another group")


def fallback_group_has_room(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """The alarm sets the size of the fall-back group, from its minNodes to its maxNodes."""
    other = _fallback(group, settings)
    if other is None:
        return
    path = (*at, "fallbackGroup")
    if other.min_nodes >= other.max_nodes:
        yield Fault(path, f"'{other.name}' cannot grow: minNodes is {other.min_nodes}", "raise its maxNodes")
    spots = [spot.name for spot in settings.gpu_groups if spot.fallback_group == other.name]
    if spots[0] != group.name:
        yield Fault(
            path,
            f"'{other.name}' is the fall-back of '{spots[0]}'",
            "two alarms would set one size: add a group",
        )
    if other.schedules:
        yield Fault(
            path,
            f"'{other.name}' has schedules",
            "they and the alarm would set one size: remove the schedules",
        )
    if other.idle_stop_minutes is not None:
        yield Fault(
            path,
            f"'{other.name}' has idleStopMinutes",
            f"two alarms would set one size: remove it there; that of '{group.name}' serves both groups",
        )
    if other.desired_nodes not in (None, other.min_nodes):
        yield Fault(
            path,
            f"'{other.name}' is created with {other.desired_nodes} nodes",
            f"the alarm sets it to its minNodes {other.min_nodes} as soon as no spot node is lacking: remove "
            "desiredNodes",
        )


@warning
def fallback_has_an_end(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A run may end while spot is short: the spot group goes on lacking nodes, and the alarm to replace them."""
    if group.fallback_group is not None and group.idle_stop_minutes is None:
        yield Fault(
            (*at, "fallbackGroup"),
            "without idleStopMinutes on-demand nodes stay when a run ends while spot is short",
            "write idleStopMinutes in this group, which serves both",
        )


def fallback_group_can_join_the_run(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Nodes of both groups train one run: the same GPUs and software, and EFA traffic ends at the zone's border."""
    other = _fallback(group, settings)
    if other is None:
        return
    path = (*at, "fallbackGroup")
    gpus = [{t.gpu.text for _, t in known_types(one)} for one in (group, other)]
    if all(gpus) and gpus[0] != gpus[1]:
        names = [" or ".join(sorted(one)) for one in gpus]
        yield Fault(
            path, f"'{other.name}' has {names[1]}, this group {names[0]}", "use types with the same GPUs"
        )
    if group.image.profile != other.image.profile:
        yield Fault(
            path,
            f"'{other.name}' has the image profile {other.image.profile}",
            f"give it {group.image.profile}",
        )
    with_efa = [efa_is_wanted(one, settings) for one in (group, other)]
    if with_efa[0] != with_efa[1]:
        on, off = (group, other) if with_efa[0] else (other, group)
        yield Fault(
            path,
            f"'{on.name}' has EFA and '{off.name}' has not",
            "their nodes share no network: write efa alike",
        )
    elif with_efa[0] and set(zones_of(group, settings)) != set(zones_of(other, settings)):
        yield Fault(
            path,
            f"'{other.name}' with EFA is in {', '.join(zones_of(other, settings))}",
            f"put it into {', '.join(zones_of(group, settings))}",
        )


def _fallback(group: GpuGroupSettings, settings: Settings) -> GpuGroupSettings | None:
    """The fall-back group where it is another group of the stack."""
    if group.fallback_group in (None, group.name):
        return None
    return next((other for other in settings.gpu_groups if other.name == group.fallback_group), None)


@warning
def efa_has_a_cluster_placement(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """AWS advises a cluster placement group for EFA (ParallelCluster warns too); a reservation is where it is."""
    if (
        group.placement == "none"
        and group.reservation is None
        and known_types(group)
        and efa_is_wanted(group, settings)
    ):
        yield Fault(
            (*at, "placement"),
            "none for a group with EFA: its nodes may be far apart, and collectives slower",
            "write cluster, or efa: off",
        )


@warning
def placement_has_one_type(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Several types in one placement group lower the chance of capacity (EC2 user guide, placement groups)."""
    if group.placement != "none" and len(group.instance_types) > 1:
        yield Fault(
            (*at, "placement"),
            f"{group.placement} with {len(group.instance_types)} instance types: EC2 is more often out of capacity",
            "name one type, or write none",
        )


@warning
def placement_by_id_has_one_zone(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A placement group of strategy cluster lies in one zone; of an id the strategy is not known here."""
    zones = zones_of(group, settings)
    if group.placement.startswith("pg-") and len(set(zones)) > 1:
        yield Fault(
            (*at, "zones"),
            f"{len(set(zones))} zones for a group in {group.placement}, which has one if it is a cluster",
            "name one zone, or suppress this where its strategy is partition or spread",
        )


RULES = (
    rebalance_needs_spot,
    rebalance_disturbs_efa,
    strategy_needs_spot,
    spot_has_several_pools,
    fallback_group_is_there,
    fallback_group_is_on_demand,
    fallback_group_has_room,
    fallback_has_an_end,
    fallback_group_can_join_the_run,
    efa_has_a_cluster_placement,
    placement_has_one_type,
    placement_by_id_has_one_zone,
)
