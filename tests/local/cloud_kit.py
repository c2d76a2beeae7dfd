"""What the tests of the local cloud have in common: clients, a network, a group, and bounded waiting."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from typing import Any

import boto3

REGION = "us-east-1"
LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"


def client(service: str, endpoint: str, region: str = REGION) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def hooks(launching_seconds: int = 60, terminating_seconds: int = 60) -> list[dict[str, Any]]:
    return [
        {
            "LifecycleHookName": "launching",
            "LifecycleTransition": LAUNCHING,
            "HeartbeatTimeout": launching_seconds,
            "DefaultResult": "ABANDON",
        },
        {
            "LifecycleHookName": "terminating",
            "LifecycleTransition": TERMINATING,
            "HeartbeatTimeout": terminating_seconds,
            "DefaultResult": "CONTINUE",
        },
    ]


class Cluster:
    """A network, a launch template and Auto Scaling groups over them."""

    def __init__(self, endpoint: str, user_data: str = "#!/bin/bash\n", region: str = REGION):
        self.ec2, self.autoscaling = client("ec2", endpoint, region), client("autoscaling", endpoint, region)
        vpc = self.ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [
            self.ec2.create_subnet(
                VpcId=vpc, CidrBlock=f"10.42.{i}.0/24", AvailabilityZone=f"{region}{zone}"
            )["Subnet"]["SubnetId"]
            for i, zone in ((1, "a"), (2, "b"))
        ]
        self.template_data = {
            "ImageId": "ami-0123456789abcdef0",
            "InstanceType": "g6.xlarge",
            "UserData": base64.b64encode(user_data.encode()).decode(),
        }
        found = self.ec2.create_launch_template(
            LaunchTemplateName=f"template-{time.monotonic_ns()}", LaunchTemplateData=self.template_data
        )
        self.template = found["LaunchTemplate"]["LaunchTemplateId"]

    def group(self, name: str, desired: int, **changes: Any) -> None:
        given: dict[str, Any] = {
            "AutoScalingGroupName": name,
            "MinSize": 0,
            "MaxSize": 6,
            "DesiredCapacity": desired,
            "VPCZoneIdentifier": ",".join(self.subnets),
            "LaunchTemplate": {"LaunchTemplateId": self.template, "Version": "1"},
            "LifecycleHookSpecificationList": hooks(),
            **changes,
        }
        self.autoscaling.create_auto_scaling_group(
            **{key: value for key, value in given.items() if value is not None}
        )

    def mixed(self, base: int, on_demand_percent: int) -> dict[str, Any]:
        """The two arguments of a group whose first `base` instances are on demand."""
        specification = {"LaunchTemplateId": self.template, "Version": "1"}
        distribution = {
            "OnDemandBaseCapacity": base,
            "OnDemandPercentageAboveBaseCapacity": on_demand_percent,
        }
        policy = {
            "LaunchTemplate": {
                "LaunchTemplateSpecification": specification,
                "Overrides": [{"InstanceType": "g6.xlarge"}],
            },
            "InstancesDistribution": distribution,
        }
        return {"LaunchTemplate": None, "MixedInstancesPolicy": policy}

    def states(self, group: str) -> dict[str, str]:
        """Instance id -> lifecycle state, in the order of their launch."""
        found = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        return {i["InstanceId"]: i["LifecycleState"] for i in found["AutoScalingGroups"][0]["Instances"]}

    def warm(self, group: str) -> dict[str, str]:
        """Instance id -> lifecycle state of the warm pool."""
        found = self.autoscaling.describe_warm_pool(AutoScalingGroupName=group)
        return {i["InstanceId"]: i["LifecycleState"] for i in found["Instances"]}

    def instance(self, instance_id: str) -> dict[str, Any]:
        """As DescribeInstances has it."""
        found = self.ec2.describe_instances(InstanceIds=[instance_id])
        return found["Reservations"][0]["Instances"][0]

    def complete(self, group: str, instance_id: str, hook: str, result: str) -> None:
        self.autoscaling.complete_lifecycle_action(
            AutoScalingGroupName=group,
            InstanceId=instance_id,
            LifecycleHookName=hook,
            LifecycleActionResult=result,
        )

    def ec2_state(self, instance_id: str) -> str:
        return self.instance(instance_id)["State"]["Name"]


def wait_until(holds: Callable[[], bool], what: str, limit_seconds: float = 30.0) -> None:
    deadline = time.monotonic() + limit_seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {limit_seconds:.0f} s for {what}"
        time.sleep(0.05)
