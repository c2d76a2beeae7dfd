"""What a GPU group is made of. Pure: settings and catalog in, plain facts out; the component only declares
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from components.catalog import InstanceType, NetworkInterface, image_profile, instance_type
from components.names import stack_names, stack_tags
from components.settings import GpuGroupSettings, Settings
from components.settings.group_model import Purchase

from .interfaces import plan_interfaces


@dataclass(frozen=True)
class MixedInstances:
    """A mixed-instances policy in Auto Scaling's own terms."""

    instance_types: tuple[str, ...]  # the preferred one first
    on_demand_base_nodes: int
    on_demand_percent_above_base: int
    spot_allocation_strategy: str
    spot_max_price_usd_per_hour: str | None  # decimal text; None: the on-demand price is the limit


@dataclass(frozen=True)
class GroupPlan:
    """Everything about one group that is known before anything exists."""

    name: str
    auto_scaling_group: str
    instance_types: tuple[str, ...]
    zones: tuple[str, ...]
    interfaces: tuple[NetworkInterface, ...]
    mixed_instances: MixedInstances | None  # None: one type, all on demand, bought by the template itself
    cluster_placement: bool
    image_id: str  # an AMI id, or resolve:ssm:<parameter>, which EC2 resolves at each launch
    image_profile: str
    root_device_name: str
    root_volume_gib: int
    min_nodes: int
    max_nodes: int
    desired_nodes: int  # at creation only
    refresh_on_change: bool
    tags: dict[
        str, str
    ]  # of instances, volumes and interfaces; the provider's default tags do not reach those

    @property
    def buys_spot(self) -> bool:
        mixed = self.mixed_instances
        return mixed is not None and mixed.on_demand_percent_above_base < 100

    @property
    def efa_count(self) -> int:
        return sum(interface.interface_type != "interface" for interface in self.interfaces)


def plan_group(settings: Settings, group: GpuGroupSettings) -> GroupPlan:
    """The plan of one group of sound settings; ValueError where its types cannot share one template."""
    types = [instance_type(name) for name in group.instance_types]
    zones = tuple(group.zones if group.zones is not None else settings.network.availability_zones)
    group_name = stack_names(settings).auto_scaling_group(group.name)
    profile = image_profile(group.image.profile)
    return GroupPlan(
        name=group.name,
        auto_scaling_group=group_name,
        instance_types=tuple(group.instance_types),
        zones=zones,
        interfaces=plan_interfaces(types, uses_efa(group.efa, types, zones), group.efa_layout),
        mixed_instances=plan_purchase(group.instance_types, group.purchase),
        cluster_placement=group.placement == "cluster",
        image_id=group.image.ami_id or f"resolve:ssm:{group.image.ssm_parameter}",
        image_profile=profile.name,
        root_device_name=profile.root_device_name,
        root_volume_gib=group.root_volume_gib,
        min_nodes=group.min_nodes,
        max_nodes=group.max_nodes,
        desired_nodes=group.min_nodes if group.desired_nodes is None else group.desired_nodes,
        refresh_on_change=group.rollout == "refresh",
        tags={
            **stack_tags(settings),
            "Name": group_name,
            "gpu-training:group": group.name,
        },
    )


def uses_efa(choice: str, types: Sequence[InstanceType], zones: Sequence[str]) -> bool:
    """``auto``: on when every type has EFA and there is one zone, since EFA traffic ends at the zone's
    border.
    """
    if choice == "auto":
        return len(zones) == 1 and all(type_.max_efa_interfaces > 0 for type_ in types)
    return choice == "on"


def plan_purchase(instance_types: Sequence[str], purchase: Purchase) -> MixedInstances | None:
    """The mixed-instances policy; None for one type without spot, where it would only stand in the way."""
    if len(instance_types) == 1 and purchase.spot_percent == 0:
        return None
    limit = purchase.max_price_usd_per_hour
    return MixedInstances(
        instance_types=tuple(instance_types),
        on_demand_base_nodes=purchase.on_demand_base,
        on_demand_percent_above_base=100 - purchase.spot_percent,
        spot_allocation_strategy=purchase.strategy,
        spot_max_price_usd_per_hour=None if limit is None else format(Decimal(str(limit)), "f"),
    )
