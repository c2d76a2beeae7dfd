"""Auto Scaling groups that live: launches, lifecycle hooks, health, scale-in, over moto's own objects.

`reconcile` brings one group a step nearer to its desired state. It runs after every call that changes a
group and on every tick of the server, so that time-outs and replacements depend on no caller.
"""

from __future__ import annotations

import time
import uuid

from moto.autoscaling.models import Activity, AutoScalingBackend, FakeAutoScalingGroup, LifecycleHook
from moto.core.exceptions import ServiceException

from . import scaling
from .instances import (
    GroupInstance,
    finish,
    hook_for,
    ledger,
    log_activity,
    members,
    on_demand_wanted,
    run_instance,
    suspended,
)
from .scaling import LAUNCHING, TERMINATING, Wait

RETRY_SECONDS = 5.0  # after a launch that failed


def begin_termination(state: GroupInstance, cause: str, now: float) -> Activity:
    """Take an instance out of service; with a terminating hook it waits for that one first."""
    group = state.group
    if state.activity is not None and state.lifecycle_state.startswith("Pending"):
        finish(state.activity, "Cancelled", "Instance was terminated before it came into service.")
    state.wait = None
    was_in_service = state.lifecycle_state == "InService"
    state.activity = log_activity(
        group, f"Terminating EC2 instance: {state.instance.id}", cause, "InProgress"
    )
    hook = hook_for(group, TERMINATING) if was_in_service else None
    activity = state.activity
    if hook is None:
        terminate(state)
    else:
        state.lifecycle_state = "Terminating:Wait"
        state.activity.status_code = "MidTerminatingLifecycleAction"
        state.wait = _wait(hook, TERMINATING, now)
    return activity


def terminate(state: GroupInstance) -> None:
    """Terminate in EC2 and forget in the group."""
    group = state.group
    if state.instance.state != "terminated":
        group.ec2_backend.terminate_instances([state.instance.id])
    state.lifecycle_state = "Terminated"
    group.instance_states = [other for other in group.instance_states if other is not state]
    finish(state.activity, "Successful")


def complete_action(state: GroupInstance, result: str, reason: str) -> None:
    """A lifecycle action ended: by the node, or by time-out with the hook's default result."""
    wait = state.wait
    if wait is None:
        return
    state.wait = None
    if scaling.after_wait(wait, result) == "InService":
        _into_service(state)
        return
    if wait.transition == LAUNCHING:
        message = (
            "Instance failed to complete user's Lifecycle Action: "
            f"Lifecycle Action with token {wait.token} was abandoned: {reason}"
        )
        finish(state.activity, "Cancelled", message)
    terminate(state)


def reconcile(group: FakeAutoScalingGroup, now: float | None = None) -> None:
    """One step: expired hooks, vanished instances, unhealthy ones, scale-in, launches."""
    now = time.monotonic() if now is None else now
    states = [state for state in group.instance_states if isinstance(state, GroupInstance)]
    for state in states:
        if state.wait is not None and now >= state.wait.deadline:
            complete_action(state, state.wait.default_result, "Heartbeat Timeout")
    if not suspended(group, "HealthCheck"):
        _notice_vanished(group, states)
    if not suspended(group, "Terminate"):
        if not suspended(group, "ReplaceUnhealthy"):
            for state in states:
                if state.health_status == "Unhealthy" and state.member().counted:
                    cause = "an instance was taken out of service in response to a user health-check."
                    begin_termination(state, cause, now)
        _scale_in(group, now)
    if not suspended(group, "Launch") and now >= ledger(group).launch_after:
        _launch(group, now)


def _scale_in(group: FakeAutoScalingGroup, now: float) -> None:
    desired = group.desired_capacity or 0
    surplus = scaling.scale_in_choice(members(group), desired, on_demand_wanted(group))
    for state in list(group.instance_states):
        if isinstance(state, GroupInstance) and state.instance.id in surplus:
            cause = f"an instance was taken out of service, shrinking the capacity to {desired}."
            begin_termination(state, cause, now)


def _notice_vanished(group: FakeAutoScalingGroup, states: list[GroupInstance]) -> None:
    """Instances that EC2 ended (spot interruption, TerminateInstances): no hook can wait for them."""
    for state in states:
        if state in group.instance_states and state.instance.state in ("terminated", "stopped"):
            finish(state.activity, "Cancelled", "Instance was terminated by EC2.")
            cause = (
                "an instance was taken out of service in response to an EC2 health check "
                "indicating it has been terminated or stopped."
            )
            state.activity = log_activity(
                group, f"Terminating EC2 instance: {state.instance.id}", cause, "InProgress"
            )
            terminate(state)


def _launch(group: FakeAutoScalingGroup, now: float) -> None:
    desired = group.desired_capacity or 0
    for spot in scaling.next_purchases(members(group), desired, on_demand_wanted(group)):
        cause = (
            "an instance was started in response to a difference between desired and actual capacity, "
            f"increasing the capacity to {desired}."
        )
        try:
            state = run_instance(group, spot, now)
        except (ServiceException, ValueError, KeyError, IndexError) as fault:
            activity = log_activity(group, "Launching a new EC2 instance", cause, "Failed")
            finish(activity, "Failed", f"{fault} Launching EC2 instance failed.")
            ledger(group).launch_after = now + RETRY_SECONDS
            return
        description = f"Launching a new EC2 instance: {state.instance.id}"
        state.activity = log_activity(group, description, cause, "InProgress")
        hook = hook_for(group, LAUNCHING)
        if hook is None:
            _into_service(state, now)
        else:
            state.lifecycle_state = "Pending:Wait"
            state.activity.status_code = "MidLifecycleAction"
            state.wait = _wait(hook, LAUNCHING, now)


def _into_service(state: GroupInstance, now: float | None = None) -> None:
    state.lifecycle_state = "InService"
    state.in_service_at = time.monotonic() if now is None else now
    finish(state.activity, "Successful")


def _wait(hook: LifecycleHook, transition: str, now: float) -> Wait:
    return scaling.begin_wait(
        hook.name, transition, str(uuid.uuid4()), hook.default_result, float(hook.heartbeat_timeout), now
    )


def managed(backend: AutoScalingBackend, instance_id: str) -> GroupInstance | None:
    for group in backend.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance.id == instance_id and isinstance(state, GroupInstance):
                return state
    return None
