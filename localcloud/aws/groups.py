"""Auto Scaling groups that live: launches, hooks, health, scale-in, warm pools, over moto's own objects.

`reconcile` brings one group a step nearer to its desired state. It runs after every call that changes a
group and on every tick of the server, so that time-outs and replacements depend on no caller.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence

from moto.autoscaling.exceptions import ValidationError
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
    """Take an instance out of service; with a terminating hook it waits for that one first.

    AWS lets warm instances wait for it too; here they go at once, since a machine that is off answers no hook.
    """
    group = state.group
    if state.activity is not None and state.lifecycle_state.startswith(("Pending", "Warmed:Pending")):
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
        _arrive(state, time.monotonic())
        return
    if wait.transition == LAUNCHING:
        message = (
            "Instance failed to complete user's Lifecycle Action: "
            f"Lifecycle Action with token {wait.token} was abandoned: {reason}"
        )
        finish(state.activity, "Cancelled", message)
    terminate(state)


def reconcile(group: FakeAutoScalingGroup, now: float | None = None) -> None:
    """One step: expired hooks, vanished instances, unhealthy ones, scale-in, launches, the warm pool."""
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
                if state.health_status == "Unhealthy" and (state.member().counted or state.warm):
                    cause = "an instance was taken out of service in response to a user health-check."
                    begin_termination(state, cause, now)
        _scale_in(group, now)
    if not suspended(group, "Launch") and now >= ledger(group).launch_after:
        _launch(group, now)
    if not suspended(group, "Terminate"):
        _trim_pool(group, now)


def _scale_in(group: FakeAutoScalingGroup, now: float) -> None:
    desired = group.desired_capacity or 0
    surplus = scaling.scale_in_choice(members(group), desired, on_demand_wanted(group, desired))
    for state in _states(group, surplus):
        cause = f"an instance was taken out of service, shrinking the capacity to {desired}."
        begin_termination(state, cause, now)


def _notice_vanished(group: FakeAutoScalingGroup, states: list[GroupInstance]) -> None:
    """Instances that EC2 ended (spot interruption, TerminateInstances): no hook can wait for them."""
    for state in states:
        ended = state.instance.state == "terminated" or (
            state.instance.state == "stopped" and state.lifecycle_state != "Warmed:Stopped"
        )
        if ended and state in group.instance_states:
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
    """Fill the group, out of its warm pool first; then the pool."""
    desired = group.desired_capacity or 0
    purchases = scaling.next_purchases(members(group), desired, on_demand_wanted(group, desired))
    cause = (
        "an instance was started in response to a difference between desired and actual capacity, "
        f"increasing the capacity to {desired}."
    )
    for spot, warm in zip(purchases, scaling.taken_from_pool(members(group), purchases), strict=True):
        if warm is not None:
            (state,) = _states(group, [warm])
            _leave_pool(state, cause, now)
        elif not _launch_one(group, spot, cause, "", now):
            return
    if group.warm_pool is None:
        return
    wanted = _pool_wanted(group, desired)
    cause = f"an instance was started to keep {wanted} in the warm pool."
    for spot in scaling.pool_purchases(members(group), wanted, on_demand_wanted(group, desired + wanted)):
        if not _launch_one(group, spot, cause, scaling.WARMED, now):
            return


def _launch_one(group: FakeAutoScalingGroup, spot: bool, cause: str, stage: str, now: float) -> bool:
    """Into the group (`stage` "") or its pool; False, and not again for a while, when EC2 gives none."""
    try:
        state = run_instance(group, spot, now)
    except (ServiceException, ValueError, KeyError, IndexError) as fault:
        activity = log_activity(group, "Launching a new EC2 instance", cause, "Failed")
        finish(activity, "Failed", f"{fault} Launching EC2 instance failed.")
        ledger(group).launch_after = now + RETRY_SECONDS
        return False
    where = " into warm pool" if stage else ""
    description = f"Launching a new EC2 instance{where}: {state.instance.id}"
    state.activity = log_activity(group, description, cause, "InProgress")
    _pass_hook(state, stage, now)
    return True


def _leave_pool(state: GroupInstance, cause: str, now: float) -> None:
    """Into the group's service, through its launching hook once more, as the user guide has it."""
    description = f"Launching a new EC2 instance from warm pool: {state.instance.id}"
    state.activity = log_activity(state.group, description, cause, "InProgress")
    if state.instance.state == "stopped":
        state.instance.start()
    _pass_hook(state, "", now)


def _pass_hook(state: GroupInstance, stage: str, now: float) -> None:
    state.lifecycle_state = f"{stage}Pending"
    hook = hook_for(state.group, LAUNCHING)
    if hook is None or state.activity is None:
        _arrive(state, now)
        return
    state.lifecycle_state = f"{stage}Pending:Wait"
    state.activity.status_code = "MidLifecycleAction"
    state.wait = _wait(hook, LAUNCHING, now)


def _arrive(state: GroupInstance, now: float) -> None:
    """The launch is done: in service, or ready in the pool."""
    pool = state.group.warm_pool
    if not state.warm:
        state.lifecycle_state, state.in_service_at = "InService", now
    elif pool is not None and pool.pool_state == "Stopped":
        state.instance.stop()
        state.lifecycle_state = "Warmed:Stopped"
    else:
        state.lifecycle_state = "Warmed:Running"
    finish(state.activity, "Successful")


def _trim_pool(group: FakeAutoScalingGroup, now: float) -> None:
    """A pool that became too large, or was deleted. What the group still waits for is not counted against it."""
    counted = sum(member.counted for member in members(group))
    wanted = _pool_wanted(group, min(group.desired_capacity or 0, counted)) if group.warm_pool else 0
    for state in _states(group, scaling.pool_surplus(members(group), wanted)):
        begin_termination(state, f"an instance was taken out of the warm pool, which keeps {wanted}.", now)


def _pool_wanted(group: FakeAutoScalingGroup, in_group: int) -> int:
    pool = group.warm_pool
    assert pool is not None
    prepared = pool.max_group_prepared_capacity
    return scaling.pool_wanted(
        (group.max_size or 0) if prepared is None else prepared, pool.min_size, in_group
    )


def _states(group: FakeAutoScalingGroup, instance_ids: Sequence[str]) -> list[GroupInstance]:
    return [
        state
        for state in list(group.instance_states)
        if isinstance(state, GroupInstance) and state.instance.id in instance_ids
    ]


def _wait(hook: LifecycleHook, transition: str, now: float) -> Wait:
    return scaling.begin_wait(
        hook.name, transition, str(uuid.uuid4()), hook.default_result, float(hook.heartbeat_timeout), now
    )


def named(backend: AutoScalingBackend, name: str) -> FakeAutoScalingGroup:
    if name not in backend.autoscaling_groups:
        raise ValidationError(f"AutoScalingGroup name not found - AutoScalingGroup {name} not found")
    return backend.autoscaling_groups[name]


def managed(backend: AutoScalingBackend, instance_id: str) -> GroupInstance | None:
    for group in backend.autoscaling_groups.values():
        for state in group.instance_states:
            if state.instance.id == instance_id and isinstance(state, GroupInstance):
                return state
    return None
