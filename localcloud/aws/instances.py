"""Instances of an Auto Scaling group over moto's: how one is launched, and the record of what happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from moto.autoscaling.models import ASG_NAME_TAG, Activity, FakeAutoScalingGroup, InstanceState, LifecycleHook
from moto.core.exceptions import ServiceException
from moto.core.utils import utcnow
from moto.ec2.utils import parse_user_data

from . import scaling
from .scaling import Member, Wait

KEPT_ACTIVITIES = 200  # a group's newest


@dataclass
class Ledger:
    """What moto's group object has no place for."""

    activities: list[Activity] = field(default_factory=list)
    launch_after: float = 0.0  # monotonic; after a failed launch


_ledgers: WeakKeyDictionary[FakeAutoScalingGroup, Ledger] = WeakKeyDictionary()


def ledger(group: FakeAutoScalingGroup) -> Ledger:
    return _ledgers.setdefault(group, Ledger())


class GroupInstance(InstanceState):
    """moto's instance of a group, plus what its lifecycle needs."""

    def __init__(self, instance: Any, group: FakeAutoScalingGroup, version: int, now: float):
        super().__init__(
            instance,
            lifecycle_state="Pending",
            protected_from_scale_in=group.new_instances_protected_from_scale_in,
            autoscaling_group=group,
        )
        self.group = group
        self.version = version
        self.launched_at = now
        self.in_service_at: float | None = None
        self.wait: Wait | None = None
        self.activity: Activity | None = None

    @property
    def launch_template(self) -> dict[str, Any] | None:
        """The version this instance was launched from, which the group's may have moved on from."""
        template = self.group.ec2_launch_template
        if template is None:
            return None
        return {
            "LaunchTemplateId": template.id,
            "LaunchTemplateName": template.name,
            "Version": str(self.version),
        }

    @property
    def warm(self) -> bool:
        return self.lifecycle_state.startswith(scaling.WARMED)

    def member(self) -> Member:
        return Member(
            instance_id=self.instance.id,
            state=self.lifecycle_state,
            spot=self.instance.lifecycle == "spot",
            subnet=self.instance.subnet_id or "",
            template_version=self.version,
            launched_at=self.launched_at,
            protected=bool(self.protected_from_scale_in),
        )


def members(group: FakeAutoScalingGroup) -> list[Member]:
    return [state.member() for state in group.instance_states if isinstance(state, GroupInstance)]


def hook_for(group: FakeAutoScalingGroup, transition: str) -> LifecycleHook | None:
    """The group's hook for a transition; of several the first, as this project declares one of each."""
    hooks = group.autoscaling_backend.describe_lifecycle_hooks(group.name)
    return next((hook for hook in hooks if hook.lifecycle_transition == transition), None)


def suspended(group: FakeAutoScalingGroup, process: str) -> bool:
    return any(entry["ProcessName"] == process for entry in group.suspended_processes)


def activities(group: FakeAutoScalingGroup) -> list[Activity]:
    """What the group did, newest first."""
    return ledger(group).activities


def log_activity(group: FakeAutoScalingGroup, description: str, cause: str, status: str) -> Activity:
    activity = Activity(description, f"At {utcnow():%Y-%m-%dT%H:%M:%SZ} {cause}", group, status_code=status)
    activity.end_time = None  # type: ignore[assignment]
    activity.status_message = None  # type: ignore[attr-defined]
    log = activities(group)
    log.insert(0, activity)
    del log[KEPT_ACTIVITIES:]
    return activity


def finish(activity: Activity | None, status: str, message: str | None = None) -> None:
    if activity is None or activity.end_time is not None:
        return
    activity.status_code = status
    activity.status_message = message  # type: ignore[attr-defined]
    activity.end_time = utcnow()
    activity.progress = 100


def run_instance(group: FakeAutoScalingGroup, spot: bool, now: float) -> GroupInstance:
    """Run one instance from the template version in force, as EC2 would: the template's network, tags and
    metadata options, and the purchase kind that the group chose."""
    template = group.ec2_launch_template
    if template is None:
        raise ValueError("The group has no launch template; launch configurations are not supported here.")
    version = template.get_version(group.launch_template_version)
    data = version.data
    policy = group.mixed_instances_policy or {}
    overrides = policy.get("LaunchTemplate", {}).get("Overrides") or [{}]
    market = data.get("InstanceMarketOptions") or {}
    is_spot = spot if policy else market.get("MarketType") == "spot"
    interfaces = data.get("NetworkInterfaces") or []
    security_groups = data.get("SecurityGroupIds") or (interfaces[0].get("Groups") if interfaces else None)
    subnets = (group.vpc_zone_identifier or "").split(",")
    reservation = group.ec2_backend.run_instances(
        version.image_id,
        1,
        parse_user_data(raw) if isinstance(raw := data.get("UserData"), str) else raw,
        [],
        instance_type=overrides[0].get("InstanceType") or version.instance_type,
        is_instance_type_default=False,
        tags={"instance": {**group.get_propagated_tags(), **version.instance_tags, ASG_NAME_TAG: group.name}},
        launch_template={"LaunchTemplateId": template.id, "Version": str(version.number)},
        security_group_ids=list(security_groups or []),
        metadata_options=data.get("MetadataOptions") or {},
        associate_public_ip=bool(interfaces and interfaces[0].get("AssociatePublicIpAddress")),
        subnet_id=scaling.emptiest_subnet(subnets, members(group)) or None,
        placement=group.availability_zones[0],
        lifecycle="spot" if is_spot else None,
        region_name=group.ec2_backend.region_name,  # of its private DNS name
    )
    instance = reservation.instances[0]
    profile = data.get("IamInstanceProfile") or {}
    if profile:
        name, arn = profile.get("Name"), profile.get("Arn")
        try:
            group.ec2_backend.associate_iam_instance_profile(instance.id, name, arn)
        except ServiceException:
            group.ec2_backend.terminate_instances([instance.id])
            raise
    state = GroupInstance(instance, group, version.number, now)
    group.instance_states.append(state)
    return state


def on_demand_wanted(group: FakeAutoScalingGroup, desired: int) -> int:
    if not group.mixed_instances_policy:
        template = group.ec2_launch_template
        options = template.get_version(group.launch_template_version).data if template else {}
        market = options.get("InstanceMarketOptions") or {}
        return 0 if market.get("MarketType") == "spot" else desired
    distribution = group.mixed_instances_policy.get("InstancesDistribution", {})
    base = int(distribution.get("OnDemandBaseCapacity") or 0)
    percent = distribution.get("OnDemandPercentageAboveBaseCapacity")
    return scaling.on_demand_wanted(desired, base, 100 if percent is None else int(percent))
