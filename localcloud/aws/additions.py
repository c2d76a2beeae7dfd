"""The one table of what the local cloud adds to moto 5.2: where, and why.

A test compares this table with what `applied()` really changes in moto.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from moto.autoscaling.models import AutoScalingBackend, FakeAutoScalingGroup
from moto.autoscaling.responses import AutoScalingResponse
from moto.cloudwatch.models import CloudWatchBackend, MetricDatumBase
from moto.ec2.models.instances import InstanceBackend
from moto.ec2.responses import EC2Response
from moto.s3.models import FakeBucket
from moto.s3.responses import S3Response

from . import autoscaling_api as asg
from . import cloudwatch, placement_groups, power, s3_checksums, s3_policies, warm_pools


@dataclass(frozen=True)
class Addition:
    owner: type  # the class of moto that gets the function
    name: str  # its attribute there; an API call where the owner is a response class
    function: Any  # or, of a model, a property
    why: str


ADDITIONS: tuple[Addition, ...] = (
    Addition(AutoScalingResponse, "create_auto_scaling_group", asg.create_auto_scaling_group,
             "moto ignores LifecycleHookSpecificationList and overwrites a group of the same name"),
    Addition(AutoScalingResponse, "delete_auto_scaling_group", asg.delete_auto_scaling_group,
             "moto deletes a group that still has instances even without ForceDelete"),
    Addition(AutoScalingResponse, "complete_lifecycle_action", asg.complete_lifecycle_action,
             "missing in moto; nodes end their launching and terminating hooks by it"),
    Addition(AutoScalingResponse, "record_lifecycle_action_heartbeat", asg.record_lifecycle_action_heartbeat,
             "missing in moto; nodes prolong a hook while they still save"),
    Addition(AutoScalingResponse, "describe_scaling_activities", asg.describe_scaling_activities,
             "moto's list is always empty; people read here why a launch failed"),
    Addition(AutoScalingResponse, "set_instance_health", asg.set_instance_health,
             "moto ignores the grace period and never replaces the instance"),
    Addition(AutoScalingResponse, "set_desired_capacity", asg.set_desired_capacity,
             "moto accepts sizes outside the group's limits"),
    Addition(FakeAutoScalingGroup, "set_desired_capacity", asg.group_set_desired_capacity,
             "moto launches straight to InService, on demand only, deaf to hooks and suspended processes"),
    Addition(FakeAutoScalingGroup, "update", asg.group_update,
             "moto drops the mixed-instances policy on an update that does not repeat it"),
    Addition(AutoScalingBackend, "terminate_instance", asg.backend_terminate_instance,
             "moto skips the terminating hook and the minimum size"),
    Addition(AutoScalingBackend, "notify_terminate_instances", asg.backend_notify_terminate_instances,
             "moto replaces at once what EC2 terminated, even while launches are suspended"),
    Addition(AutoScalingBackend, "delete_auto_scaling_group", asg.backend_delete_auto_scaling_group,
             "moto leaves waiting instances and hooks behind"),
    Addition(AutoScalingResponse, "put_warm_pool", warm_pools.put_warm_pool,
             "moto only notes the pool, and forgets what an update does not repeat"),
    Addition(AutoScalingResponse, "describe_warm_pool", warm_pools.describe_warm_pool,
             "moto's pool has no instances"),
    Addition(AutoScalingBackend, "delete_warm_pool", warm_pools.backend_delete_warm_pool,
             "moto's pool has no instances to end"),
    Addition(FakeAutoScalingGroup, "instances", warm_pools.group_instances,
             "DescribeAutoScalingGroups leaves those of the warm pool out"),
    Addition(FakeAutoScalingGroup, "warm_pool_size", warm_pools.group_warm_pool_size,
             "missing in moto; DescribeAutoScalingGroups shows it"),
    Addition(InstanceBackend, "reboot_instances", power.reboot_instances,
             "a reboot in moto leaves no trace that the node driver could act upon, and revives the terminated"),
    Addition(InstanceBackend, "start_instances", power.start_instances,
             "moto starts terminated instances"),
    Addition(InstanceBackend, "stop_instances", power.stop_instances,
             "moto turns terminated instances into stopped ones"),
    Addition(EC2Response, "create_placement_group", placement_groups.create_placement_group,
             "missing in moto"),
    Addition(EC2Response, "describe_placement_groups", placement_groups.describe_placement_groups,
             "missing in moto"),
    Addition(EC2Response, "delete_placement_group", placement_groups.delete_placement_group,
             "missing in moto"),
    Addition(S3Response, "_get_checksum", s3_checksums.get_checksum,
             "moto accepts an upload whose checksum is wrong; S3 answers 400 BadDigest"),
    Addition(FakeBucket, "get_permission", s3_policies.get_permission,
             "moto leaves conditions aside: a policy that denies plain HTTP would deny everything"),
    Addition(MetricDatumBase, "__init__", cloudwatch.init_datum,
             "CloudWatch keeps standard metrics by the minute; moto loses a count written this second"),
    Addition(CloudWatchBackend, "get_metric_statistics", cloudwatch.get_metric_statistics,
             "CloudWatch rounds StartTime down to the minute"),
)  # fmt: skip


@contextmanager
def applied() -> Iterator[None]:
    """moto with the additions; without them again afterwards."""
    missing = object()
    before = [(a, a.owner.__dict__.get(a.name, missing)) for a in ADDITIONS]
    for addition in ADDITIONS:
        setattr(addition.owner, addition.name, addition.function)
    try:
        yield
    finally:
        for addition, original in before:
            if original is missing:
                delattr(addition.owner, addition.name)
            else:
                setattr(addition.owner, addition.name, original)
