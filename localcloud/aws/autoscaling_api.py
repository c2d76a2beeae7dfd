"""Calls of the Auto Scaling API that moto lacks or answers otherwise than AWS; bound by `additions.py`."""

from __future__ import annotations

import copy
import time
from typing import Any

from moto.autoscaling.exceptions import AutoscalingClientError, ValidationError
from moto.autoscaling.models import Activity, AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from . import groups
from .instances import GroupInstance, activities

_create_group = AutoScalingResponse.create_auto_scaling_group
_update_group = FakeAutoScalingGroup.update
_delete_group = AutoScalingBackend.delete_auto_scaling_group


# ---- calls of the API ------------------------------------------------------------------------------------


def create_auto_scaling_group(response: AutoScalingResponse) -> ActionResult:
    """moto's, plus the hooks given at creation, which gate the very first instances."""
    backend, name = response.autoscaling_backend, response._get_param("AutoScalingGroupName")
    if name in backend.autoscaling_groups:
        raise AutoscalingClientError(
            "AlreadyExists",
            f"AutoScalingGroup by this name already exists - A group with the name {name} exists",
        )
    result = _create_group(response)
    for hook in response._get_param("LifecycleHookSpecificationList", []):
        backend.create_lifecycle_hook(
            name=hook["LifecycleHookName"],
            as_name=name,
            transition=hook["LifecycleTransition"],
            timeout=hook.get("HeartbeatTimeout"),
            result=hook.get("DefaultResult"),
        )
    groups.reconcile(backend.autoscaling_groups[name])
    return result


def delete_auto_scaling_group(response: AutoScalingResponse) -> ActionResult:
    name = response._get_param("AutoScalingGroupName")
    group = groups.named(response.autoscaling_backend, name)
    if group.instance_states and not response._get_bool_param("ForceDelete", False):
        raise AutoscalingClientError(
            "ResourceInUse",
            "You cannot delete an AutoScalingGroup while there are instances or pending Spot instance "
            "request(s) still in the group.",
        )
    response.autoscaling_backend.delete_auto_scaling_group(name)
    return EmptyResult()


def complete_lifecycle_action(response: AutoScalingResponse) -> ActionResult:
    result = response._get_param("LifecycleActionResult")
    if result not in ("CONTINUE", "ABANDON"):
        raise ValidationError("LifecycleActionResult must be one of CONTINUE, ABANDON.")
    state = _waiting(response)
    groups.complete_action(state, result, f"Lifecycle Action Completed with {result} Result")
    groups.reconcile(state.group)
    return EmptyResult()


def record_lifecycle_action_heartbeat(response: AutoScalingResponse) -> ActionResult:
    state = _waiting(response)
    assert state.wait is not None
    state.wait = state.wait.prolonged(time.monotonic())
    return EmptyResult()


def describe_scaling_activities(response: AutoScalingResponse) -> ActionResult:
    backend, name = response.autoscaling_backend, response._get_param("AutoScalingGroupName")
    asked = [groups.named(backend, name)] if name else list(backend.autoscaling_groups.values())
    found: list[Activity] = [activity for group in asked for activity in activities(group)]
    wanted = response._get_param("ActivityIds", [])
    chosen = [activity for activity in found if not wanted or activity.activity_id in wanted]
    return ActionResult({"Activities": chosen[: response._get_int_param("MaxRecords", 100)]})


def set_instance_health(response: AutoScalingResponse) -> ActionResult:
    """moto's ignores ShouldRespectGracePeriod, whose default is true: then an instance that has just come
    into service cannot be reported unhealthy."""
    status = response._get_param("HealthStatus")
    if status not in ("Healthy", "Unhealthy"):
        raise ValidationError("Valid instance health states are: [Healthy, Unhealthy].")
    state = _instance(response.autoscaling_backend, response._get_param("InstanceId"))
    grace = float(state.group.health_check_grace_period or 0)
    young = state.in_service_at is not None and time.monotonic() < state.in_service_at + grace
    if not (young and response._get_bool_param("ShouldRespectGracePeriod", True)):
        state.health_status = status
        groups.reconcile(state.group)
    return EmptyResult()


def set_desired_capacity(response: AutoScalingResponse) -> ActionResult:
    group = groups.named(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))
    wanted = response._get_int_param("DesiredCapacity", 0)
    if wanted < (group.min_size or 0):
        raise ValidationError(
            f"New SetDesiredCapacity value {wanted} is below min value {group.min_size} for the AutoScalingGroup."
        )
    if wanted > (group.max_size or 0):
        raise ValidationError(
            f"New SetDesiredCapacity value {wanted} is above max value {group.max_size} for the AutoScalingGroup."
        )
    group.set_desired_capacity(wanted)
    return EmptyResult()


# ---- moto's models underneath ----------------------------------------------------------------------------


def group_set_desired_capacity(group: FakeAutoScalingGroup, new_capacity: int | None) -> None:
    group.desired_capacity = group.min_size if new_capacity is None else new_capacity
    # moto also calls this while it builds the group, before the group and its hooks are known.
    if group.autoscaling_backend.autoscaling_groups.get(group.name) is group:
        groups.reconcile(group)


def group_update(group: FakeAutoScalingGroup, *args: Any, **kwargs: Any) -> None:
    """moto's forgets the mixed-instances policy when an update does not repeat it, and the desired size is
    not brought within new limits."""
    if not kwargs.get("launch_template") and not kwargs.get("mixed_instances_policy"):
        kwargs["mixed_instances_policy"] = _as_given(group.mixed_instances_policy)
    if kwargs.get("desired_capacity") is None:
        lower = kwargs.get("min_size") if kwargs.get("min_size") is not None else group.min_size
        upper = kwargs.get("max_size") if kwargs.get("max_size") is not None else group.max_size
        kwargs["desired_capacity"] = min(max(group.desired_capacity or 0, lower or 0), upper or 0)
    _update_group(group, *args, **kwargs)


def _as_given(policy: dict[str, Any] | None) -> dict[str, Any] | None:
    """moto adds the template's name to the id, and refuses a policy that has both."""
    if policy is None:
        return None
    copied = copy.deepcopy(policy)
    copied["LaunchTemplate"]["LaunchTemplateSpecification"].pop("LaunchTemplateName", None)
    return copied


def backend_terminate_instance(
    backend: AutoScalingBackend, instance_id: str, should_decrement: bool
) -> Activity:
    """TerminateInstanceInAutoScalingGroup: through the terminating hook, replaced unless decremented."""
    state = _instance(backend, instance_id)
    if state.warm:
        raise ValidationError(
            f"The instance {instance_id} is in a warm pool: this call cannot be made on it."
        )
    group = state.group
    desired = group.desired_capacity or 0
    if should_decrement:
        if desired <= (group.min_size or 0):
            raise ValidationError(
                f"Currently, desiredSize equals minSize ({group.min_size}). Terminating instance without "
                "replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity "
                "flag to false or lower group's min size."
            )
        group.desired_capacity = desired - 1
    cause = f"instance {instance_id} was taken out of service in response to a user request"
    cause += f", shrinking the capacity from {desired} to {desired - 1}." if should_decrement else "."
    activity = groups.begin_termination(state, cause, time.monotonic())
    groups.reconcile(group)
    return activity


def backend_notify_terminate_instances(backend: AutoScalingBackend, instance_ids: list[str]) -> None:
    """EC2 terminated instances: their groups notice and replace them."""
    for group in list(backend.autoscaling_groups.values()):
        if any(state.instance.id in instance_ids for state in group.instance_states):
            groups.reconcile(group)


def backend_delete_auto_scaling_group(backend: AutoScalingBackend, group_name: str) -> None:
    """Without waiting for hooks: whoever deletes a group by force wants it gone."""
    group = groups.named(backend, group_name)
    for state in list(group.instance_states):
        if isinstance(state, GroupInstance):
            groups.terminate(state)
    _delete_group(backend, group_name)
    for hook in backend.describe_lifecycle_hooks(group_name):
        backend.delete_lifecycle_hook(group_name, hook.name)


# ---- look-ups --------------------------------------------------------------------------------------------


def _instance(backend: AutoScalingBackend, instance_id: str) -> GroupInstance:
    state = groups.managed(backend, instance_id)
    if state is None:
        raise ValidationError(
            f"Instance Id not found - No managed instance found for instance ID: {instance_id}"
        )
    return state


def _waiting(response: AutoScalingResponse) -> GroupInstance:
    """The instance whose lifecycle action the call names, by instance id or by token."""
    group = groups.named(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))
    hook, instance_id = response._get_param("LifecycleHookName"), response._get_param("InstanceId")
    token = response._get_param("LifecycleActionToken")
    for state in group.instance_states:
        if not isinstance(state, GroupInstance) or state.wait is None or state.wait.hook != hook:
            continue
        if (token and state.wait.token == token) or (not token and state.instance.id == instance_id):
            return state
    named = f"instance ID {instance_id}" if instance_id else f"token {token}"
    raise ValidationError(f"No active Lifecycle Action found with {named}")
