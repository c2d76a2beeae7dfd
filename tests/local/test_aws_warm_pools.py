"""Warm pools of the local cloud: filled through the launching hook, taken from first, refilled, and replaced."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.aws.server import AwsServer
from tests.local.cloud_kit import Cluster, wait_until

names = (f"warm-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def aws() -> Any:
    with AwsServer(tick_seconds=0.05) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(aws: AwsServer) -> Cluster:
    return Cluster(aws.endpoint)


@pytest.fixture
def group() -> str:
    return next(names)


def put(cluster: Cluster, group: str, **changes: Any) -> None:
    cluster.autoscaling.put_warm_pool(AutoScalingGroupName=group, **changes)


def resize(cluster: Cluster, group: str, desired: int) -> None:
    cluster.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=desired)


def filled(cluster: Cluster, group: str, **changes: Any) -> list[str]:
    """An empty group's pool, its instances through their hook."""
    cluster.group(group, 0)
    put(cluster, group, **changes)
    for instance_id in cluster.warm(group):
        cluster.complete(group, instance_id, "launching", "CONTINUE")
    return list(cluster.warm(group))


# ---- into the pool


def test_instances_pass_the_launching_hook_into_a_pool_of_stopped_ones(cluster: Cluster, group: str) -> None:
    cluster.group(group, 0)
    put(cluster, group, MaxGroupPreparedCapacity=2)
    first, second = cluster.warm(group)
    assert cluster.warm(group) == {first: "Warmed:Pending:Wait", second: "Warmed:Pending:Wait"}
    assert cluster.ec2_state(first) == "running"
    cluster.complete(group, first, "launching", "CONTINUE")
    assert cluster.warm(group) == {first: "Warmed:Stopped", second: "Warmed:Pending:Wait"}
    assert (cluster.ec2_state(first), cluster.ec2_state(second)) == ("stopped", "running")


def test_a_pool_of_running_ones_keeps_them_running(cluster: Cluster, group: str) -> None:
    (instance,) = filled(cluster, group, MaxGroupPreparedCapacity=1, PoolState="Running")
    assert cluster.warm(group) == {instance: "Warmed:Running"}
    assert cluster.ec2_state(instance) == "running"


def test_abandon_ends_a_warm_instance_and_another_takes_its_place(cluster: Cluster, group: str) -> None:
    cluster.group(group, 0)
    put(cluster, group, MinSize=1, MaxGroupPreparedCapacity=0)
    (instance,) = cluster.warm(group)
    cluster.complete(group, instance, "launching", "ABANDON")
    (other,) = cluster.warm(group)
    assert other != instance
    assert cluster.ec2_state(instance) == "terminated"


def test_the_pool_is_seen_by_its_own_call_and_by_instance_but_not_in_the_group(
    cluster: Cluster, group: str
) -> None:
    (instance,) = filled(cluster, group, MinSize=1, MaxGroupPreparedCapacity=0)
    (found,) = cluster.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])[
        "AutoScalingGroups"
    ]
    assert (found["Instances"], found["WarmPoolSize"]) == ([], 1)
    assert found["WarmPoolConfiguration"]["PoolState"] == "Stopped"
    (entry,) = cluster.autoscaling.describe_auto_scaling_instances(InstanceIds=[instance])[
        "AutoScalingInstances"
    ]
    assert (entry["AutoScalingGroupName"], entry["LifecycleState"]) == (group, "Warmed:Stopped")
    assert entry["LaunchTemplate"]["Version"] == "1"


def test_without_a_limit_the_pool_prepares_up_to_the_groups_maximum(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1, MaxSize=3)
    put(cluster, group)
    assert len(cluster.warm(group)) == 2


def test_suspended_launches_hold_for_the_pool_too(cluster: Cluster, group: str) -> None:
    cluster.group(group, 0)
    suspended = {"AutoScalingGroupName": group, "ScalingProcesses": ["Launch"]}
    cluster.autoscaling.suspend_processes(**suspended)
    put(cluster, group, MinSize=1)
    assert cluster.warm(group) == {}
    cluster.autoscaling.resume_processes(**suspended)
    wait_until(lambda: cluster.warm(group) != {}, "launches after the resumption")


# ---- out of it


def test_scale_out_starts_a_warm_instance_through_the_hook_and_launches_no_new_one(
    cluster: Cluster, group: str
) -> None:
    first, second = filled(cluster, group, MaxGroupPreparedCapacity=2)
    address = cluster.instance(first)["PrivateIpAddress"]
    resize(cluster, group, 1)
    assert cluster.states(group) == {first: "Pending:Wait"}, "the longest ready first"
    assert cluster.warm(group) == {second: "Warmed:Stopped"}
    assert (cluster.ec2_state(first), cluster.instance(first)["PrivateIpAddress"]) == ("running", address)
    cluster.complete(group, first, "launching", "CONTINUE")
    assert cluster.states(group) == {first: "InService"}


def test_a_pool_with_a_minimum_is_refilled(cluster: Cluster, group: str) -> None:
    (first,) = filled(cluster, group, MinSize=1, MaxGroupPreparedCapacity=0)
    resize(cluster, group, 1)
    (other,) = cluster.warm(group)
    assert other != first
    assert cluster.warm(group) == {other: "Warmed:Pending:Wait"}


def test_what_the_pool_does_not_have_ready_is_launched(cluster: Cluster, group: str) -> None:
    (warm,) = filled(cluster, group, MinSize=1, MaxGroupPreparedCapacity=0)
    resize(cluster, group, 2)
    states = cluster.states(group)
    assert states.pop(warm) == "Pending:Wait"
    assert list(states.values()) == ["Pending:Wait"]


def test_scale_in_terminates_and_the_pool_prepares_another(cluster: Cluster, group: str) -> None:
    (first,) = filled(cluster, group, MaxGroupPreparedCapacity=1)
    resize(cluster, group, 1)
    cluster.complete(group, first, "launching", "CONTINUE")
    assert cluster.warm(group) == {}
    resize(cluster, group, 0)
    assert cluster.states(group) == {first: "Terminating:Wait"}
    assert list(cluster.warm(group).values()) == ["Warmed:Pending:Wait"]


def test_an_abandoned_way_out_of_the_pool_is_tried_again_with_another(cluster: Cluster, group: str) -> None:
    first, second = filled(cluster, group, MinSize=2, MaxGroupPreparedCapacity=0)
    resize(cluster, group, 1)
    cluster.complete(group, first, "launching", "ABANDON")
    assert cluster.states(group) == {second: "Pending:Wait"}


def test_a_mixed_group_takes_out_of_its_pool_only_what_it_would_buy(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1, **cluster.mixed(base=1, on_demand_percent=0))
    put(cluster, group, MaxGroupPreparedCapacity=2)
    (base,), (spot,) = cluster.states(group), cluster.warm(group)
    cluster.complete(group, spot, "launching", "CONTINUE")
    assert cluster.instance(spot)["InstanceLifecycle"] == "spot"
    cluster.ec2.terminate_instances(InstanceIds=[base])
    (replacement,) = cluster.states(group)
    assert replacement != spot, "the base is bought on demand"
    resize(cluster, group, 2)
    assert sorted(cluster.states(group)) == sorted([replacement, spot])


# ---- health and size


def test_a_stopped_warm_instance_is_no_dead_one(aws: AwsServer, cluster: Cluster, group: str) -> None:
    (warm,) = filled(cluster, group, MinSize=1, MaxGroupPreparedCapacity=0)
    put(cluster, group, MinSize=1)  # each call looks at the group's health
    assert cluster.warm(group) == {warm: "Warmed:Stopped"}


@pytest.mark.parametrize("how", ["terminated by EC2", "reported unhealthy"])
def test_a_dead_warm_instance_is_replaced(cluster: Cluster, group: str, how: str) -> None:
    (warm,) = filled(cluster, group, MinSize=1, MaxGroupPreparedCapacity=0)
    if how == "terminated by EC2":
        cluster.ec2.terminate_instances(InstanceIds=[warm])
    else:
        cluster.autoscaling.set_instance_health(InstanceId=warm, HealthStatus="Unhealthy")
    (other,) = cluster.warm(group)
    assert other != warm
    assert cluster.ec2_state(warm) == "terminated"


def test_a_smaller_pool_lets_its_surplus_go(cluster: Cluster, group: str) -> None:
    ids = filled(cluster, group, MaxGroupPreparedCapacity=3)
    put(cluster, group, MaxGroupPreparedCapacity=1)
    (left,) = cluster.warm(group)
    assert {cluster.ec2_state(i) for i in ids if i != left} == {"terminated"}


def test_a_larger_group_that_cannot_launch_keeps_its_warm_instances(cluster: Cluster, group: str) -> None:
    ids = filled(cluster, group, MaxGroupPreparedCapacity=2)
    cluster.autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"])
    resize(cluster, group, 2)
    assert sorted(cluster.warm(group)) == sorted(ids)


def test_a_deleted_pool_takes_its_instances_along_and_leaves_the_group(cluster: Cluster, group: str) -> None:
    first, second = filled(cluster, group, MaxGroupPreparedCapacity=2)
    resize(cluster, group, 1)
    cluster.autoscaling.delete_warm_pool(AutoScalingGroupName=group, ForceDelete=True)
    assert cluster.warm(group) == {}
    assert cluster.states(group) == {first: "Pending:Wait"}
    assert cluster.ec2_state(second) == "terminated"


# ---- refusals


def test_an_update_keeps_what_it_does_not_repeat(cluster: Cluster, group: str) -> None:
    cluster.group(group, 0)
    put(cluster, group, MaxGroupPreparedCapacity=1, PoolState="Running")
    put(cluster, group, MinSize=2)
    found = cluster.autoscaling.describe_warm_pool(AutoScalingGroupName=group)["WarmPoolConfiguration"]
    assert (found["MaxGroupPreparedCapacity"], found["MinSize"], found["PoolState"]) == (1, 2, "Running")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"PoolState": "Hibernated"}, "Stopped and Running only"),
        ({"InstanceReusePolicy": {"ReuseOnScaleIn": True}}, "ReuseOnScaleIn"),
    ],
)
def test_what_the_local_cloud_cannot_do_is_refused(
    cluster: Cluster, group: str, changes: dict[str, Any], words: str
) -> None:
    cluster.group(group, 0)
    with pytest.raises(ClientError, match=words):
        put(cluster, group, **changes)
    assert cluster.warm(group) == {}


def test_a_template_that_asks_for_spot_has_no_pool(cluster: Cluster, group: str) -> None:
    data = {**cluster.template_data, "InstanceMarketOptions": {"MarketType": "spot"}}
    found = cluster.ec2.create_launch_template(LaunchTemplateName=f"of-{group}", LaunchTemplateData=data)
    template = {"LaunchTemplateId": found["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}
    cluster.group(group, 0, LaunchTemplate=template)
    with pytest.raises(ClientError, match="Spot Instances"):
        put(cluster, group)


def test_a_warm_instance_is_not_terminated_through_its_group(cluster: Cluster, group: str) -> None:
    (warm,) = filled(cluster, group, MinSize=1, MaxGroupPreparedCapacity=0)
    with pytest.raises(ClientError, match="in a warm pool"):
        cluster.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=warm, ShouldDecrementDesiredCapacity=False
        )
    assert cluster.warm(group) == {warm: "Warmed:Stopped"}
