"""What the alarms of a group do besides telling people: they call the policies of the groups. No resources."""

from __future__ import annotations

from collections.abc import Mapping

from components.monitoring.cloudwatch import AlarmActions, WatchedGroup

from .gpu_group import GpuGroup
from .group_scaling import FALLBACK_END, FALLBACK_RAISE, IDLE_STOP
from .plan import GroupPlan


def watched_group(plan: GroupPlan, groups: Mapping[str, GpuGroup]) -> WatchedGroup:
    """The group for the alarms; ``groups`` has every group of the stack by its name in the configuration."""
    actions: dict[str, AlarmActions] = {}
    if plan.fallback_group is not None:
        policies = groups[plan.fallback_group].policy_arns
        actions["spot-short"] = AlarmActions([policies[FALLBACK_RAISE]], [policies[FALLBACK_END]])
    if plan.idle_stop_minutes is not None:
        actions["idle"] = AlarmActions([groups[plan.name].policy_arns[IDLE_STOP]])
    return WatchedGroup(plan.auto_scaling_group, plan.buys_spot, plan.idle_stop_minutes, actions)
