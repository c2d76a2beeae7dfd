"""What a GPU group is made of. Pure: settings and catalog in, plain facts out; the component only declares
them.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

from components.catalog import InstanceType, NetworkInterface, image_profile, instance_type
from components.names import stack_names, stack_tags
from components.settings import GpuGroupSettings, Settings

from .interfaces import LayoutGroup, plan_layouts
from .purchase import MixedInstances, ReservedCapacity, plan_purchase, plan_rebalance, plan_reservation
from .scaling import ScheduledAction, Step, nodes_at_creation, plan_fallback_steps, plan_schedules

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone.utc)


@dataclass(frozen=True)
class GroupPlan:
    """Everything about one group that is known before anything exists."""

    name: str
    auto_scaling_group: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    layouts: tuple[LayoutGroup, ...]  # one launch template each; the preferred type's comes first
    mixed_instances: MixedInstances | None  # None: one type, all on demand, bought by the template itself
    capacity_rebalance: bool
    reservation: ReservedCapacity | None
    cluster_placement: bool  # a placement group of its own
    placement_group_id: str | None  # one that exists
    image_id: str  # an AMI id, or resolve:ssm:<parameter>, which EC2 resolves at each launch
    image_profile: str
    root_device_name: str
    root_volume_gib: int
    root_volume_iops: int | None  # None: gp3's 3000
    root_volume_throughput_mibps: int | None  # None: gp3's 125
    min_nodes: int
    max_nodes: int
    desired_nodes: int  # at creation only
    schedules: tuple[ScheduledAction, ...]
    fallback_group: str | None  # that an alarm scales out while this one lacks spot nodes
    fallback_auto_scaling_group: str | None  # the same one's name in AWS
    fallback_steps: tuple[Step, ...]  # of this group as such a one; empty: nobody falls back to it
    idle_stop_minutes: int | None
    # Of the alarm that reads its nodes' counts: its own, or that of the spot group that falls back to it.
    idle_alarm_minutes: int | None
    max_run_hours: float | None
    refresh_on_change: bool
    tags: dict[
        str, str
    ]  # of instances, volumes and interfaces; the provider's default tags do not reach those

    @property
    def buys_spot(self) -> bool:
        mixed = self.mixed_instances
        return mixed is not None and mixed.on_demand_percent_above_base < 100

    @property
    def rolls_back(self) -> bool:
        """Whether a refresh that fails can go back: with an image that a parameter names, Auto Scaling refuses to begin
        one that is to be rolled back (API reference, RefreshPreferences, AutoRollback, 2026).
        """
        return not self.image_id.startswith("resolve:ssm:")

    @property
    def interfaces(self) -> tuple[NetworkInterface, ...]:
        """Of the preferred type."""
        return self.layouts[0].interfaces

    @property
    def efa_count(self) -> int:
        """EFAs that a node has whichever of the types it is."""
        return min(
            sum(interface.interface_type != "interface" for interface in layout.interfaces)
            for layout in self.layouts
        )


def plan_group(settings: Settings, group: GpuGroupSettings, now: datetime.datetime = LONG_AGO) -> GroupPlan:
    """The plan of one group of sound settings; ValueError where EC2 would refuse the interfaces of its types.

    ``now`` decides what of a capacity block's time is still to come, and nothing else.
    """
    types = [instance_type(name) for name in group.instance_types]
    zones = zones_of(settings, group)
    group_name = stack_names(settings).auto_scaling_group(group.name)
    profile = image_profile(group.image.profile)
    efa = uses_efa(group.efa, types, zones)
    spot = _who_falls_back_to(settings, group)
    return GroupPlan(
        name=group.name,
        auto_scaling_group=group_name,
        instance_types=tuple(group.instance_types),
        zones=zones,
        layouts=plan_layouts(types, efa, group.efa_layout),
        mixed_instances=plan_purchase(group.instance_types, group.purchase),
        capacity_rebalance=plan_rebalance(group.purchase, efa),
        reservation=plan_reservation(group.reservation),
        cluster_placement=group.placement == "cluster",
        placement_group_id=group.placement if group.placement.startswith("pg-") else None,
        image_id=group.image.launched_id,
        image_profile=profile.name,
        root_device_name=profile.root_device_name,
        root_volume_gib=group.root_volume_gib,
        root_volume_iops=group.root_volume_iops,
        root_volume_throughput_mibps=group.root_volume_throughput_mibps,
        min_nodes=group.min_nodes,
        max_nodes=group.max_nodes,
        desired_nodes=nodes_at_creation(group, now),
        schedules=plan_schedules(group, now),
        fallback_group=group.fallback_group,
        fallback_auto_scaling_group=(
            stack_names(settings).auto_scaling_group(group.fallback_group) if group.fallback_group else None
        ),
        fallback_steps=plan_fallback_steps(spot.max_nodes, group.min_nodes, group.max_nodes) if spot else (),
        idle_stop_minutes=group.idle_stop_minutes,
        idle_alarm_minutes=spot.idle_stop_minutes if spot else group.idle_stop_minutes,
        max_run_hours=group.max_run_hours,
        refresh_on_change=group.rollout == "refresh",
        tags={
            **stack_tags(settings),
            "Name": group_name,
            "gpu-training:group": group.name,
        },
    )


def zones_of(settings: Settings, group: GpuGroupSettings) -> tuple[str, ...]:
    """The zones that the group may launch in."""
    return tuple(group.zones if group.zones is not None else settings.network.availability_zones)


def _who_falls_back_to(settings: Settings, group: GpuGroupSettings) -> GpuGroupSettings | None:
    """At most one does: a validator says so."""
    return next((spot for spot in settings.gpu_groups if spot.fallback_group == group.name), None)


def manual_rollouts(plans: Sequence[GroupPlan]) -> str | None:
    """What a preview says of groups whose running nodes a new launch template does not reach; None: of none."""
    names = [plan.name for plan in plans if not plan.refresh_on_change]
    if not names:
        return None
    return (
        f"rollout: manual in {', '.join(names)}: a changed launch template reaches nodes at their next boot as new "
        "machines, and running ones not before; `rollout: refresh` replaces them one at a time"
    )


def uses_efa(choice: str, types: Sequence[InstanceType], zones: Sequence[str]) -> bool:
    """``auto``: on when every type has EFA and there is one zone, since EFA traffic ends at the zone's
    border.
    """
    if choice == "auto":
        return len(zones) == 1 and all(type_.max_efa_interfaces > 0 for type_ in types)
    return choice == "on"
