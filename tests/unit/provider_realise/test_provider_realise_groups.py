"""Local mode: launch templates and Auto Scaling groups."""

from __future__ import annotations

import base64

import pytest

from localcloud.provider.service import Fault
from tests.unit.emulated_stack import Stack, network, template_inputs


def test_a_launch_template_carries_its_data_and_a_change_makes_the_next_version(stack: Stack) -> None:
    _, _, group = network(stack)
    made = stack.make(
        "aws:ec2/launchTemplate:LaunchTemplate", "lt", **template_inputs(group.id), updateDefaultVersion=True
    )
    assert (made["latestVersion"], made["defaultVersion"]) == (1, 1)
    ec2 = stack.clients("ec2")
    versions = ec2.describe_launch_template_versions(LaunchTemplateId=made.id)["LaunchTemplateVersions"]
    data = versions[0]["LaunchTemplateData"]
    assert data["MetadataOptions"] == {"HttpTokens": "required", "HttpPutResponseHopLimit": 1}
    assert data["BlockDeviceMappings"][0]["Ebs"]["Encrypted"] is True
    assert data["NetworkInterfaces"][0]["Groups"] == [group.id]
    assert data["NetworkInterfaces"][0]["AssociatePublicIpAddress"] is False
    assert base64.b64decode(data["UserData"]) == b"#!/bin/bash\ntrue\n"
    changed = template_inputs(group.id, imageId="ami-87654321")
    state = stack.change("lt", **changed, updateDefaultVersion=True)
    assert (state["latestVersion"], state["defaultVersion"]) == (2, 2)
    state = stack.change("lt", **changed, updateDefaultVersion=True, tags={"a": "b"})
    assert state["latestVersion"] == 2


def test_a_property_that_the_api_does_not_know_is_an_error_and_not_dropped(stack: Stack) -> None:
    with pytest.raises(Fault, match=r"urn:pulumi:local.*metadataOptions\.httpTokenz .*has no place"):
        stack.make(
            "aws:ec2/launchTemplate:LaunchTemplate",
            "lt",
            name="lt",
            metadataOptions={"httpTokenz": "required"},
        )


HOOK = {
    "name": "launching",
    "lifecycleTransition": "autoscaling:EC2_INSTANCE_LAUNCHING",
    "defaultResult": "ABANDON",
    "heartbeatTimeout": 900,
}


def test_a_group_has_its_hooks_before_its_first_instance_and_goes_with_its_instances(stack: Stack) -> None:
    _, subnet, security_group = network(stack)
    template = stack.make("aws:ec2/launchTemplate:LaunchTemplate", "lt", **template_inputs(security_group.id))
    stack.make("aws:ec2/placementGroup:PlacementGroup", "pg", name="cluster", strategy="cluster")
    specification = {"launchTemplateId": template.id, "version": "1"}
    inputs = {
        "name": "nodes",
        "minSize": 0,
        "maxSize": 3,
        "desiredCapacity": 2,
        "placementGroup": "cluster",
        "vpcZoneIdentifiers": [subnet.id],
        "waitForCapacityTimeout": "0",
        "enabledMetrics": ["GroupInServiceInstances"],
        "initialLifecycleHooks": [HOOK],
        "mixedInstancesPolicy": {
            "instancesDistribution": {
                "onDemandBaseCapacity": 1,
                "spotAllocationStrategy": "price-capacity-optimized",
            },
            "launchTemplate": {
                "launchTemplateSpecification": specification,
                "overrides": [{"instanceType": "g6.xlarge"}, {"instanceType": "g6.12xlarge"}],
            },
        },
        "tags": [{"key": "Name", "value": "node", "propagateAtLaunch": True}],
        "suspendedProcesses": ["AZRebalance"],
    }
    made = stack.make("aws:autoscaling/group:Group", "group", **inputs)
    stack.make("aws:autoscaling/lifecycleHook:LifecycleHook", "hook", autoscalingGroupName="nodes", **HOOK)
    stack.make(
        "aws:autoscaling/schedule:Schedule",
        "night",
        autoscalingGroupName="nodes",
        scheduledActionName="night",
        recurrence="0 20 * * *",
        minSize=0,
        maxSize=0,
        desiredCapacity=0,
    )
    client = stack.clients("autoscaling")
    group = client.describe_auto_scaling_groups()["AutoScalingGroups"][0]
    assert group["AutoScalingGroupARN"] == made["arn"]
    states = {instance["LifecycleState"] for instance in group["Instances"]}
    assert len(group["Instances"]) == 2
    assert states <= {"Pending", "Pending:Wait"}, (
        "without the hook the first nodes would be in service at once"
    )
    policy = group["MixedInstancesPolicy"]
    assert policy["InstancesDistribution"]["OnDemandBaseCapacity"] == 1
    assert [entry["InstanceType"] for entry in policy["LaunchTemplate"]["Overrides"]] == [
        "g6.xlarge",
        "g6.12xlarge",
    ]
    assert [process["ProcessName"] for process in group["SuspendedProcesses"]] == ["AZRebalance"]
    assert group["VPCZoneIdentifier"] == subnet.id
    state = stack.change(
        "group",
        **{**inputs, "maxSize": 5, "suspendedProcesses": [], "tags": [{**inputs["tags"][0], "value": "n"}]},
    )
    group = client.describe_auto_scaling_groups()["AutoScalingGroups"][0]
    assert (group["MaxSize"], group["DesiredCapacity"], state["desiredCapacity"]) == (5, 2, 2)
    assert group["SuspendedProcesses"] == []
    assert [(tag["Key"], tag["Value"]) for tag in group["Tags"]] == [("Name", "n")]
    stack.change("hook", autoscalingGroupName="nodes", **{**HOOK, "heartbeatTimeout": 600})
    hook = client.describe_lifecycle_hooks(AutoScalingGroupName="nodes")["LifecycleHooks"][0]
    assert (hook["HeartbeatTimeout"], hook["DefaultResult"]) == (600, "ABANDON")


def test_a_scheduled_action_says_nothing_of_sizes_that_stay(stack: Stack) -> None:
    """-1 is the provider's word for them; the API takes no such size."""
    _, subnet, security_group = network(stack)
    template = stack.make("aws:ec2/launchTemplate:LaunchTemplate", "lt", **template_inputs(security_group.id))
    stack.make(
        "aws:autoscaling/group:Group",
        "group",
        name="nodes",
        minSize=0,
        maxSize=3,
        launchTemplate={"id": template.id, "version": "1"},
        vpcZoneIdentifiers=[subnet.id],
    )
    action = {"autoscalingGroupName": "nodes", "scheduledActionName": "night", "minSize": -1, "maxSize": -1}
    stack.make(
        "aws:autoscaling/schedule:Schedule", "night", **action, desiredCapacity=0, recurrence="0 20 * * *"
    )
    (found,) = stack.clients("autoscaling").describe_scheduled_actions()["ScheduledUpdateGroupActions"]
    assert found["DesiredCapacity"] == 0 and not {"MinSize", "MaxSize"} & found.keys()


def test_an_update_does_not_touch_a_capacity_that_others_have_changed(stack: Stack) -> None:
    _, subnet, security_group = network(stack)
    template = stack.make("aws:ec2/launchTemplate:LaunchTemplate", "lt", **template_inputs(security_group.id))
    inputs = {
        "name": "nodes",
        "minSize": 0,
        "maxSize": 3,
        "desiredCapacity": 1,
        "launchTemplate": {"id": template.id, "version": "1"},
        "vpcZoneIdentifiers": [subnet.id],
    }
    stack.make("aws:autoscaling/group:Group", "group", **inputs)
    stack.clients("autoscaling").set_desired_capacity(AutoScalingGroupName="nodes", DesiredCapacity=2)
    assert stack.change("group", **{**inputs, "maxSize": 4})["desiredCapacity"] == 2
