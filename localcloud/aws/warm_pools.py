"""The warm pool calls of the Auto Scaling API; the pool's life is in `groups.py`.

Warm instances are members of moto's group in a state `Warmed:*`: seen by DescribeWarmPool and
DescribeAutoScalingInstances, and as on AWS not among the instances of DescribeAutoScalingGroups.
"""

from __future__ import annotations

import time
from typing import Any

from moto.autoscaling.exceptions import ValidationError
from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup, InstanceState
from moto.autoscaling.responses import AutoScalingResponse
from moto.core.responses import ActionResult, EmptyResult

from . import groups
from .instances import GroupInstance, on_demand_wanted

STATES = ("Stopped", "Running")
NO_LIMIT = -1  # takes an earlier MaxGroupPreparedCapacity back


def put_warm_pool(response: AutoScalingResponse) -> ActionResult:
    """What is left out stays as it was."""
    group = groups.named(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))
    before = group.warm_pool
    prepared = response._get_int_param("MaxGroupPreparedCapacity")
    minimum = response._get_int_param("MinSize")
    state = response._get_param("PoolState")
    reuse = response._get_param("InstanceReusePolicy")
    if prepared is None and before is not None:
        prepared = before.max_group_prepared_capacity
    if minimum is None:
        minimum = before.min_size if before is not None else 0
    if state is None:
        state = before.pool_state if before is not None else "Stopped"
    if state not in STATES:
        raise ValidationError(f"PoolState {state}: the local cloud has {' and '.join(STATES)} only.")
    if reuse and str(reuse.get("ReuseOnScaleIn")).lower() == "true":
        raise ValidationError(
            "ReuseOnScaleIn: the local cloud returns no instance to a warm pool; leave it out."
        )
    if group.mixed_instances_policy is None and on_demand_wanted(group, 1) == 0:
        raise ValidationError(
            "You can't add a warm pool to an Auto Scaling group whose launch template requests Spot Instances."
        )
    group.put_warm_pool(None if prepared == NO_LIMIT else prepared, minimum, state, reuse)
    groups.reconcile(group)
    return EmptyResult()


def describe_warm_pool(response: AutoScalingResponse) -> ActionResult:
    group = groups.named(response.autoscaling_backend, response._get_param("AutoScalingGroupName"))
    return ActionResult({"WarmPoolConfiguration": group.warm_pool, "Instances": _warm(group)})


def backend_delete_warm_pool(backend: AutoScalingBackend, group_name: str) -> None:
    """At once, whether by force or not: warm instances wait for no hook here."""
    group = groups.named(backend, group_name)
    group.warm_pool = None
    for state in _warm(group):
        groups.begin_termination(state, "the warm pool was deleted.", time.monotonic())


def _warm(group: FakeAutoScalingGroup) -> list[GroupInstance]:
    return [state for state in group.instance_states if isinstance(state, GroupInstance) and state.warm]


# ---- attributes of moto's group, as DescribeAutoScalingGroups reads them ---------------------------------


def _instances(group: FakeAutoScalingGroup) -> list[InstanceState]:
    warm = _warm(group)
    return [state for state in group.instance_states if state not in warm]


def _warm_pool_size(group: FakeAutoScalingGroup) -> int | None:
    return len(_warm(group)) if group.warm_pool is not None else None


group_instances: Any = property(_instances)
group_warm_pool_size: Any = property(_warm_pool_size)
