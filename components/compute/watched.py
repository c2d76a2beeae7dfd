"""What the alarms of a group do besides telling people: they call the policies of the groups. No resources."""

from __future__ import annotations

from collections.abc import Mapping

from components.monitoring.cloudwatch import AlarmActions, WatchedGroup

from .gpu_group import GpuGroup
from .group_scaling import FALLBACK_END, FALLBACK_RAISE, IDLE_STOP
from .plan import GroupPlan


def watched_group(plan: GroupPlan, groups: Mapping[str, GpuGroup]) -> WatchedGroup:
    """The group for the alarms; ``groups`` has every group of the stack by its name in the configuration."""
    own, actions = groups[plan.name], dict[str, AlarmActions]()
    fallback = None if plan.fallback_group is None else groups[plan.fallback_group]
    idle_stop = [own.policy_arns[IDLE_STOP]] if plan.idle_stop_minutes is not None else []
    if fallback is not None:
        end = fallback.policy_arns[FALLBACK_END]
        actions["spot-short"] = AlarmActions([fallback.policy_arns[FALLBACK_RAISE]], [end])
        idle_stop += [end] if idle_stop else []
    if idle_stop:
        actions["idle"] = AlarmActions(idle_stop)
    return WatchedGroup(
        plan.auto_scaling_group,
        plan.buys_spot,
        plan.idle_stop_minutes,
        plan.fallback_auto_scaling_group,
        actions,
        [own, fallback] if fallback else [own],
    )
