"""Auto Scaling groups of the local cloud behave as AWS's: hooks, purchases, health, scale-in, suspension."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.aws.server import AwsServer
from tests.local.cloud_kit import Cluster, client, hooks, wait_until

WAITING = "Pending:Wait"
names = (f"group-{number}" for number in itertools.count())


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


def in_service(cluster: Cluster, group: str, desired: int, **changes: Any) -> list[str]:
    cluster.group(group, desired, **changes)
    ids = list(cluster.states(group))
    for instance_id in ids:
        cluster.complete(group, instance_id, "launching", "CONTINUE")
    return ids


def activity(cluster: Cluster, group: str, about: str) -> dict[str, Any]:
    found = cluster.autoscaling.describe_scaling_activities(AutoScalingGroupName=group)["Activities"]
    return next(entry for entry in found if about in entry["Description"])


# ---- the launching hook


def test_hooks_given_at_creation_hold_the_first_instances(cluster: Cluster, group: str) -> None:
    cluster.group(group, 2)
    assert list(cluster.states(group).values()) == [WAITING, WAITING]
    found = cluster.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"]
    assert {hook["LifecycleHookName"] for hook in found} == {"launching", "terminating"}


def test_without_a_hook_an_instance_is_in_service_at_once(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1, LifecycleHookSpecificationList=None)
    assert list(cluster.states(group).values()) == ["InService"]


def test_continue_brings_into_service(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1)
    assert cluster.states(group) == {instance: "InService"}
    assert activity(cluster, group, instance)["StatusCode"] == "Successful"


def test_abandon_terminates_and_the_group_launches_another(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1)
    (instance,) = cluster.states(group)
    cluster.complete(group, instance, "launching", "ABANDON")
    (other,) = cluster.states(group)
    assert other != instance
    assert cluster.states(group)[other] == WAITING
    assert cluster.ec2_state(instance) == "terminated"
    entry = activity(cluster, group, instance)
    assert entry["StatusCode"] == "Cancelled"
    assert "abandoned: Lifecycle Action Completed with ABANDON Result" in entry["StatusMessage"]


def test_a_hook_nobody_answers_ends_with_its_default_result(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1, LifecycleHookSpecificationList=hooks(launching_seconds=1))
    (instance,) = cluster.states(group)
    wait_until(lambda: instance not in cluster.states(group), "the heartbeat's end")
    assert "Heartbeat Timeout" in activity(cluster, group, instance)["StatusMessage"]


def test_an_answer_to_no_question_is_refused(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1)
    with pytest.raises(ClientError, match="No active Lifecycle Action found"):
        cluster.complete(group, instance, "launching", "CONTINUE")
    with pytest.raises(ClientError, match="No active Lifecycle Action found"):
        cluster.autoscaling.record_lifecycle_action_heartbeat(
            AutoScalingGroupName=group, LifecycleHookName="launching", InstanceId=instance
        )


def test_a_heartbeat_is_accepted_while_the_instance_waits(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1)
    (instance,) = cluster.states(group)
    cluster.autoscaling.record_lifecycle_action_heartbeat(
        AutoScalingGroupName=group, LifecycleHookName="launching", InstanceId=instance
    )
    assert cluster.states(group) == {instance: WAITING}


# ---- leaving


def test_terminating_waits_for_its_hook_while_the_replacement_starts(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1)
    cluster.autoscaling.terminate_instance_in_auto_scaling_group(
        InstanceId=instance, ShouldDecrementDesiredCapacity=False
    )
    states = cluster.states(group)
    assert (states.pop(instance), list(states.values())) == ("Terminating:Wait", [WAITING])
    assert cluster.ec2_state(instance) == "running"
    cluster.complete(group, instance, "terminating", "CONTINUE")
    assert list(cluster.states(group).values()) == [WAITING]
    assert cluster.ec2_state(instance) == "terminated"


def test_a_terminating_hook_ends_by_itself(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1, LifecycleHookSpecificationList=hooks(60, 1))
    cluster.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    assert cluster.states(group) == {instance: "Terminating:Wait"}
    wait_until(lambda: cluster.states(group) == {}, "the hook's end")


def test_release_decrements_and_does_not_replace(cluster: Cluster, group: str) -> None:
    first, second = in_service(cluster, group, 2)
    cluster.autoscaling.terminate_instance_in_auto_scaling_group(
        InstanceId=first, ShouldDecrementDesiredCapacity=True
    )
    cluster.complete(group, first, "terminating", "CONTINUE")
    assert cluster.states(group) == {second: "InService"}


def test_release_below_the_minimum_is_refused(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1, MinSize=1)
    with pytest.raises(ClientError, match="desiredSize equals minSize"):
        cluster.autoscaling.terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=True
        )
    assert cluster.states(group) == {instance: "InService"}


def test_what_ec2_terminates_is_replaced_without_waiting_for_a_hook(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1)
    cluster.ec2.terminate_instances(InstanceIds=[instance])
    assert list(cluster.states(group).values()) == [WAITING]
    assert instance not in cluster.states(group)


# ---- health


def test_unhealthy_is_taken_out_and_replaced(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1)
    cluster.autoscaling.set_instance_health(
        InstanceId=instance, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
    )
    states = cluster.states(group)
    assert (states.pop(instance), list(states.values())) == ("Terminating:Wait", [WAITING])


def test_the_grace_period_protects_a_new_instance(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1, HealthCheckGracePeriod=300)
    cluster.autoscaling.set_instance_health(InstanceId=instance, HealthStatus="Unhealthy")
    assert cluster.states(group) == {instance: "InService"}


# ---- suspended processes


def test_suspended_launch_launches_nothing_until_resumed(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1)
    (instance,) = cluster.states(group)
    suspended = {"AutoScalingGroupName": group, "ScalingProcesses": ["Launch"]}
    cluster.autoscaling.suspend_processes(**suspended)
    cluster.complete(group, instance, "launching", "ABANDON")
    cluster.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=2)
    assert cluster.states(group) == {}
    cluster.autoscaling.resume_processes(**suspended)
    wait_until(lambda: len(cluster.states(group)) == 2, "launches after the resumption")


@pytest.mark.parametrize("process", ["ReplaceUnhealthy", "Terminate"])
def test_suspended_processes_leave_an_unhealthy_instance(cluster: Cluster, group: str, process: str) -> None:
    (instance,) = in_service(cluster, group, 1)
    cluster.autoscaling.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=[process])
    cluster.autoscaling.set_instance_health(
        InstanceId=instance, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
    )
    assert cluster.states(group) == {instance: "InService"}
    cluster.autoscaling.resume_processes(AutoScalingGroupName=group, ScalingProcesses=[process])
    wait_until(lambda: cluster.states(group)[instance] == "Terminating:Wait", "the replacement")


# ---- sizes and purchases


def test_sizes_outside_the_limits_are_refused(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1, MinSize=1, MaxSize=2)
    for wanted in (0, 3):
        with pytest.raises(ClientError, match=r"value \d is (below|above)"):
            cluster.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=wanted)
    assert len(cluster.states(group)) == 1


def test_new_limits_bring_the_desired_size_with_them(cluster: Cluster, group: str) -> None:
    in_service(cluster, group, 3)
    cluster.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=2)
    assert sorted(cluster.states(group).values()) == ["InService", "InService", "Terminating:Wait"]


def lifecycles(cluster: Cluster, group: str) -> list[str]:
    ids = list(cluster.states(group))
    found = cluster.ec2.describe_instances(InstanceIds=ids)["Reservations"]
    by_id = {i["InstanceId"]: i.get("InstanceLifecycle", "on-demand") for r in found for i in r["Instances"]}
    return [by_id[instance_id] for instance_id in ids]


def test_a_mixed_group_buys_its_base_on_demand_and_the_rest_as_spot(cluster: Cluster, group: str) -> None:
    cluster.group(group, 3, **cluster.mixed(base=1, on_demand_percent=0))
    assert lifecycles(cluster, group) == ["on-demand", "spot", "spot"]


def test_the_mix_survives_an_update_that_does_not_repeat_it(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1, **cluster.mixed(base=0, on_demand_percent=0))
    cluster.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, DesiredCapacity=2)
    assert lifecycles(cluster, group) == ["spot", "spot"]


def test_instances_spread_over_the_zones(cluster: Cluster, group: str) -> None:
    cluster.group(group, 4)
    found = cluster.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    zones = [i["AvailabilityZone"] for i in found["AutoScalingGroups"][0]["Instances"]]
    assert sorted(zones) == ["us-east-1a", "us-east-1a", "us-east-1b", "us-east-1b"]


# ---- what an instance is launched from


def test_an_instance_tells_the_template_version_it_came_from(cluster: Cluster, group: str) -> None:
    cluster.group(group, 1)
    changed = {**cluster.template_data, "InstanceType": "g6.12xlarge"}
    cluster.ec2.create_launch_template_version(LaunchTemplateId=cluster.template, LaunchTemplateData=changed)
    cluster.autoscaling.update_auto_scaling_group(
        AutoScalingGroupName=group,
        LaunchTemplate={"LaunchTemplateId": cluster.template, "Version": "2"},
        DesiredCapacity=2,
    )
    found = cluster.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    launched = [
        (i["LaunchTemplate"]["Version"], i["InstanceType"])
        for i in found["AutoScalingGroups"][0]["Instances"]
    ]
    assert launched == [("1", "g6.xlarge"), ("2", "g6.12xlarge")]


def test_a_launch_that_fails_says_why(cluster: Cluster, group: str) -> None:
    data = {**cluster.template_data, "IamInstanceProfile": {"Name": "missing"}}
    found = cluster.ec2.create_launch_template(LaunchTemplateName=f"of-{group}", LaunchTemplateData=data)
    template = {"LaunchTemplateId": found["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}
    cluster.group(group, 1, LaunchTemplate=template)
    assert cluster.states(group) == {}
    entry = activity(cluster, group, "Launching")
    assert (entry["StatusCode"], "missing" in entry["StatusMessage"]) == ("Failed", True)


def test_the_instance_carries_role_and_tags(aws: AwsServer, cluster: Cluster, group: str) -> None:
    iam = client("iam", aws.endpoint)
    iam.create_instance_profile(InstanceProfileName=f"profile-{group}")
    data = {**cluster.template_data, "IamInstanceProfile": {"Name": f"profile-{group}"}}
    found = cluster.ec2.create_launch_template(LaunchTemplateName=f"of-{group}", LaunchTemplateData=data)
    template = {"LaunchTemplateId": found["LaunchTemplate"]["LaunchTemplateId"], "Version": "1"}
    tags = [{"Key": "stack", "Value": "test", "PropagateAtLaunch": True}]
    cluster.group(group, 1, LaunchTemplate=template, Tags=tags)
    (instance_id,) = cluster.states(group)
    (reservation,) = cluster.ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    (instance,) = reservation["Instances"]
    assert instance["IamInstanceProfile"]["Arn"].endswith(f"/profile-{group}")
    assert {"Key": "stack", "Value": "test"} in instance["Tags"]
    assert {"Key": "aws:autoscaling:groupName", "Value": group} in instance["Tags"]


# ---- creation and deletion


def test_a_used_name_is_refused(cluster: Cluster, group: str) -> None:
    cluster.group(group, 0)
    with pytest.raises(ClientError, match="AlreadyExists"):
        cluster.group(group, 0)


def test_a_group_with_instances_is_deleted_only_by_force(cluster: Cluster, group: str) -> None:
    (instance,) = in_service(cluster, group, 1)
    delete: Callable[..., Any] = cluster.autoscaling.delete_auto_scaling_group
    with pytest.raises(ClientError, match="ResourceInUse"):
        delete(AutoScalingGroupName=group)
    delete(AutoScalingGroupName=group, ForceDelete=True)
    assert cluster.ec2_state(instance) == "terminated"
    found = cluster.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
    assert found["AutoScalingGroups"] == []
    assert cluster.autoscaling.describe_lifecycle_hooks(AutoScalingGroupName=group)["LifecycleHooks"] == []
