"""The driver's view of AWS: groups, instances, their templates; the few calls that EC2 makes by itself."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

from .driver import Instance

GROUP_TAG = "aws:autoscaling:groupName"
REBOOTS_TAG = "gpu-training:reboots"  # how often EC2 was asked to reboot the instance
ADDRESS_TAG = "gpu-training:local-address"  # the loopback address that stands for the private one


@dataclass(frozen=True)
class InstanceFacts:
    """What a node is told about itself, and what it boots."""

    instance: Instance
    instance_type: str
    availability_zone: str
    private_ip: str
    life_cycle: str  # spot | on-demand
    image_id: str
    template_id: str
    template_version: str
    role: str


class Cloud:
    def __init__(self, endpoint: str, region: str):
        self.endpoint = endpoint
        self.region = region
        options = Config(connect_timeout=2, read_timeout=20, retries={"max_attempts": 2, "mode": "standard"})

        def client(service: str) -> Any:
            return boto3.client(
                service,
                endpoint_url=endpoint,
                region_name=region,
                aws_access_key_id="local",
                aws_secret_access_key="local",  # noqa: S106 - opens nothing but the emulation
                config=options,
            )

        self._autoscaling, self.ec2 = client("autoscaling"), client("ec2")
        self._iam, self._sts = client("iam"), client("sts")

    def account_id(self) -> str:
        return self._sts.get_caller_identity()["Account"]

    def instances(self) -> list[dict[str, Any]]:
        """Every instance that a group started, as DescribeInstances has it, with the group's view added."""
        found = [
            instance
            for page in self.ec2.get_paginator("describe_instances").paginate()
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        ]
        states = {
            entry["InstanceId"]: entry
            for page in self._autoscaling.get_paginator("describe_auto_scaling_instances").paginate()
            for entry in page["AutoScalingInstances"]
        }
        for instance in found:
            tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
            instance["Tag"] = tags
            instance["Group"] = tags.get(GROUP_TAG, "")
            instance["Member"] = states.get(instance["InstanceId"], {})
        return [instance for instance in found if instance["Group"] or instance["Member"]]

    def instance(self, description: dict[str, Any]) -> Instance:
        """An instance that its group has let go of but that still runs counts as Detached."""
        return Instance(
            instance_id=description["InstanceId"],
            group=description["Member"].get("AutoScalingGroupName", description["Group"]),
            lifecycle_state=description["Member"].get("LifecycleState", "Detached"),
            ec2_state=description["State"]["Name"],
            reboots=int(description["Tag"].get(REBOOTS_TAG, 0)),
        )

    def facts(self, description: dict[str, Any]) -> InstanceFacts:
        """Raises KeyError for an instance without a launch template, which the local cloud cannot boot."""
        template = description["Member"]["LaunchTemplate"]
        return InstanceFacts(
            instance=self.instance(description),
            instance_type=description["InstanceType"],
            availability_zone=description["Placement"]["AvailabilityZone"],
            private_ip=description["PrivateIpAddress"],
            life_cycle=description.get("InstanceLifecycle", "on-demand"),
            image_id=description["ImageId"],
            template_id=template["LaunchTemplateId"],
            template_version=template["Version"],
            role=self._role(description.get("IamInstanceProfile", {}).get("Arn", "")),
        )

    def _role(self, profile_arn: str) -> str:
        profile = profile_arn.rpartition("/")[2]
        if not profile:
            return "no-role"
        try:
            roles = self._iam.get_instance_profile(InstanceProfileName=profile)["InstanceProfile"]["Roles"]
        except ClientError:
            roles = []
        return roles[0]["RoleName"] if roles else profile

    def user_data(self, template_id: str, version: str) -> bytes:
        """The user data of the very version that the instance was launched from, decoded."""
        found = self.ec2.describe_launch_template_versions(LaunchTemplateId=template_id, Versions=[version])
        data = found["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        return base64.b64decode(data.get("UserData") or "")

    def tag_address(self, instance_id: str, address: str) -> None:
        """Monitoring finds nodes as on AWS, by DescribeInstances, but has to reach them on loopback."""
        self.ec2.create_tags(Resources=[instance_id], Tags=[{"Key": ADDRESS_TAG, "Value": address}])

    def report_unhealthy(self, instance_id: str) -> None:
        self._autoscaling.set_instance_health(
            InstanceId=instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
        )

    def terminate(self, instance_id: str) -> None:
        self.ec2.terminate_instances(InstanceIds=[instance_id])

    def release(self, instance_id: str) -> bool:
        """As a node's root helper does it; False where the group's minimum size does not allow it."""
        try:
            self._autoscaling.terminate_instance_in_auto_scaling_group(
                InstanceId=instance_id, ShouldDecrementDesiredCapacity=True
            )
        except ClientError:
            return False
        return True

    def order(self, kind: str, instance_id: str) -> None:
        """What a person may ask of EC2: reboot, stop, start."""
        call = getattr(self.ec2, f"{kind}_instances")
        call(InstanceIds=[instance_id])
