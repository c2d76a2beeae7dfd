"""A stack in the project's AWS emulation, made by the stand-in's backend without an engine."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localcloud.provider.kinds import Maker
from localcloud.provider.realise import Realising
from localcloud.provider.tables import AWS

REGION = "eu-west-1"
ALLOW_S3 = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["*"]}],
    }
)
TRUST = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
        ],
    }
)


@dataclass(frozen=True)
class Made:
    """What the engine gets back: the id, and the outputs by name."""

    id: str
    state: dict[str, Any]

    def __getitem__(self, output: str) -> Any:
        return self.state[output]


class Stack:
    """Resources as the engine would hold them: type, inputs, id and state."""

    def __init__(self, backend: Realising) -> None:
        self.backend = backend
        self.place = backend.place
        self.clients = backend.clients
        self.deleted: set[str] = set()
        self.held: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {}

    def _maker(self, name: str, type_: str, inputs: Mapping[str, Any], identifier: str = "") -> Maker:
        return Maker(AWS[type_], f"urn:pulumi:local::p::{type_}::{name}", inputs, self.place, id=identifier)

    def make(self, type_: str, name: str, /, **inputs: Any) -> Made:
        identifier, state = self.backend.create(self._maker(name, type_, inputs))
        self.held[name] = (type_, inputs, identifier, state)
        return Made(identifier, state)

    def change(self, name: str, /, **inputs: Any) -> dict[str, Any]:
        type_, old, identifier, state = self.held[name]
        state = self.backend.update(self._maker(name, type_, inputs, identifier), state, old)
        self.held[name] = (type_, inputs, identifier, state)
        return state

    def exists(self, name: str) -> bool:
        type_, inputs, identifier, state = self.held[name]
        return self.backend.exists(self._maker(name, type_, inputs, identifier), state)

    def standing(self) -> list[str]:
        """What was made and not deleted."""
        return [name for name in self.held if name not in self.deleted]

    def delete(self, name: str) -> None:
        type_, inputs, identifier, state = self.held[name]
        self.backend.delete(self._maker(name, type_, inputs, identifier), state)
        self.deleted.add(name)

    def destroy(self) -> None:
        """As the engine does: what was made last goes first."""
        for name in reversed(self.held):
            self.delete(name)


def network(stack: Stack) -> tuple[Made, Made, Made]:
    """A VPC with one subnet and one security group."""
    vpc = stack.make("aws:ec2/vpc:Vpc", "vpc", cidrBlock="10.0.0.0/16", enableDnsHostnames=True)
    subnet = stack.make(
        "aws:ec2/subnet:Subnet",
        "subnet",
        vpcId=vpc.id,
        cidrBlock="10.0.0.0/20",
        availabilityZone=f"{REGION}b",
    )
    group = stack.make("aws:ec2/securityGroup:SecurityGroup", "nodes", vpcId=vpc.id, description="nodes")
    return vpc, subnet, group


def left_over(stack: Stack) -> dict[str, list[Any]]:
    """What is in the emulation that no new account has."""
    ec2 = stack.clients("ec2")
    groups = stack.clients("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    gateways = ec2.describe_nat_gateways()["NatGateways"]
    endpoints = ec2.describe_vpc_endpoints()["VpcEndpoints"]
    instances = [
        instance
        for reservation in ec2.describe_instances()["Reservations"]
        for instance in reservation["Instances"]
        if instance["State"]["Name"] not in ("terminated", "shutting-down")
    ]
    found = {
        "vpcs": [vpc for vpc in ec2.describe_vpcs()["Vpcs"] if not vpc["IsDefault"]],
        "addresses": ec2.describe_addresses()["Addresses"],
        "gateways": ec2.describe_internet_gateways()["InternetGateways"],
        "nat": [gateway for gateway in gateways if gateway["State"] != "deleted"],
        "endpoints": [endpoint for endpoint in endpoints if endpoint["State"] != "deleted"],
        "flow logs": ec2.describe_flow_logs()["FlowLogs"],
        "templates": ec2.describe_launch_templates()["LaunchTemplates"],
        "placement": ec2.describe_placement_groups()["PlacementGroups"],
        "instances": instances,
        "groups": groups,
        "roles": stack.clients("iam").list_roles()["Roles"],
        "policies": stack.clients("iam").list_policies(Scope="Local")["Policies"],
        "profiles": stack.clients("iam").list_instance_profiles()["InstanceProfiles"],
        "buckets": stack.clients("s3").list_buckets()["Buckets"],
        "topics": stack.clients("sns").list_topics()["Topics"],
        "subscriptions": stack.clients("sns").list_subscriptions()["Subscriptions"],
        "alarms": stack.clients("cloudwatch").describe_alarms()["MetricAlarms"],
        "dashboards": stack.clients("cloudwatch").list_dashboards()["DashboardEntries"],
        "log groups": stack.clients("logs").describe_log_groups()["logGroups"],
        "parameters": stack.clients("ssm").describe_parameters()["Parameters"],
    }
    return {what: items for what, items in found.items() if items}


def template_inputs(group_id: str, **more: Any) -> dict[str, Any]:
    return {
        "name": "nodes",
        "imageId": "ami-12345678",
        "instanceType": "g6.xlarge",
        "userData": base64.b64encode(b"#!/bin/bash\ntrue\n").decode(),
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
        "blockDeviceMappings": [
            {
                "deviceName": "/dev/xvda",
                "ebs": {
                    "volumeSize": 100,
                    "volumeType": "gp3",
                    "encrypted": "true",
                    "deleteOnTermination": "true",
                },
            }
        ],
        "networkInterfaces": [
            {
                "deviceIndex": 0,
                "networkCardIndex": 0,
                "securityGroups": [group_id],
                "associatePublicIpAddress": "false",
            }
        ],
        "tagSpecifications": [{"resourceType": "instance", "tags": {"Name": "node"}}],
        "monitoring": {"enabled": True},
        **more,
    }
