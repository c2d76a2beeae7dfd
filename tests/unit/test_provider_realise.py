"""Local mode against the project's AWS emulation: what is declared is there, follows changes, and goes again."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pulumi.runtime import rpc

from localcloud.aws.server import AwsServer
from localcloud.provider.kinds import Maker, Place
from localcloud.provider.realise import Clients, Realising, isolate
from localcloud.provider.service import Fault
from localcloud.provider.tables import AWS
from localcloud.provider.values import SIGNATURE, Asset

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


class Stack:
    """Resources as the engine would hold them: type, inputs, id and state."""

    def __init__(self, backend: Realising) -> None:
        self.backend = backend
        self.place = backend.place
        self.clients = backend.clients
        self.held: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {}

    def _maker(self, name: str, type_: str, inputs: Mapping[str, Any], identifier: str = "") -> Maker:
        return Maker(AWS[type_], f"urn:pulumi:local::p::{type_}::{name}", inputs, self.place, id=identifier)

    def make(self, type_: str, name: str, /, **inputs: Any) -> Any:
        identifier, state = self.backend.create(self._maker(name, type_, inputs))
        self.held[name] = (type_, inputs, identifier, state)
        return type(
            "Made", (), {"id": identifier, "state": state, "__getitem__": lambda _, key: state[key]}
        )()

    def change(self, name: str, /, **inputs: Any) -> dict[str, Any]:
        type_, old, identifier, state = self.held[name]
        state = self.backend.update(self._maker(name, type_, inputs, identifier), state, old)
        self.held[name] = (type_, inputs, identifier, state)
        return state

    def exists(self, name: str) -> bool:
        type_, inputs, identifier, state = self.held[name]
        return self.backend.exists(self._maker(name, type_, inputs, identifier), state)

    def delete(self, name: str) -> None:
        type_, inputs, identifier, state = self.held[name]
        self.backend.delete(self._maker(name, type_, inputs, identifier), state)

    def destroy(self) -> None:
        """As the engine does: what was made last goes first."""
        for name in reversed(self.held):
            self.delete(name)


@pytest.fixture(scope="module")
def emulation() -> Iterator[Realising]:
    """One server and its clients for all tests: loading a service's model takes longer than a test."""
    with pytest.MonkeyPatch.context() as patch, AwsServer() as aws:
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "NO_PROXY", "no_proxy"):
            patch.setenv(name, "")  # restored afterwards, whatever `isolate` writes
        isolate()
        account = Clients(aws.endpoint, REGION).account()
        yield Realising(aws.endpoint, Place(REGION, account, {"team": "x"}))


@pytest.fixture
def stack(emulation: Realising) -> Iterator[Stack]:
    """A stack in an empty account; when it is destroyed, the account is empty again."""
    made = Stack(emulation)
    yield made
    made.destroy()
    assert left_over(made) == {}


def network(stack: Stack) -> tuple[Any, Any, Any]:
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


def test_a_network_is_made_and_leaves_nothing_behind(stack: Stack) -> None:
    vpc, subnet, _ = network(stack)
    gateway = stack.make("aws:ec2/internetGateway:InternetGateway", "igw", vpcId=vpc.id)
    address = stack.make("aws:ec2/eip:Eip", "eip", domain="vpc")
    nat = stack.make("aws:ec2/natGateway:NatGateway", "nat", allocationId=address.id, subnetId=subnet.id)
    table = stack.make("aws:ec2/routeTable:RouteTable", "table", vpcId=vpc.id, tags={"Name": "private"})
    other = stack.make("aws:ec2/routeTable:RouteTable", "other", vpcId=vpc.id)
    stack.make(
        "aws:ec2/route:Route",
        "out",
        routeTableId=table.id,
        destinationCidrBlock="0.0.0.0/0",
        gatewayId=gateway.id,
    )
    stack.make(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "assoc",
        routeTableId=table.id,
        subnetId=subnet.id,
    )
    endpoint = stack.make(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "s3",
        vpcId=vpc.id,
        serviceName=f"com.amazonaws.{REGION}.s3",
        vpcEndpointType="Gateway",
        routeTableIds=[table.id],
    )
    ec2 = stack.clients("ec2")
    assert ec2.describe_vpcs(VpcIds=[vpc.id])["Vpcs"][0]["Tags"] == [{"Key": "team", "Value": "x"}]
    assert subnet["availabilityZone"] == f"{REGION}b"
    assert address["publicIp"] == ec2.describe_addresses()["Addresses"][0]["PublicIp"]
    assert ec2.describe_vpc_endpoints()["VpcEndpoints"][0]["RouteTableIds"] == [table.id]
    assert endpoint["prefixListId"].startswith("pl-")
    for name, target in (("out", {"natGatewayId": nat.id}),):
        stack.change(name, routeTableId=table.id, destinationCidrBlock="0.0.0.0/0", **target)
    stack.change("assoc", routeTableId=other.id, subnetId=subnet.id)
    stack.change("table", vpcId=vpc.id, tags={"Name": "renamed"})
    tables = {t["RouteTableId"]: t for t in ec2.describe_route_tables()["RouteTables"]}
    assert [r["NatGatewayId"] for r in tables[table.id]["Routes"] if "NatGatewayId" in r] == [nat.id]
    assert {t["Key"]: t["Value"] for t in tables[table.id]["Tags"]} == {"Name": "renamed", "team": "x"}
    assert [a["SubnetId"] for a in tables[other.id]["Associations"] if "SubnetId" in a] == [subnet.id]


def test_a_security_group_starts_with_no_rule_and_rules_reach_it_both_ways(stack: Stack) -> None:
    vpc, _, group = network(stack)
    ec2 = stack.clients("ec2")
    assert ec2.describe_security_group_rules(Filters=_of(group))["SecurityGroupRules"] == []
    for direction in ("Ingress", "Egress"):
        stack.make(
            f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule",
            f"self-{direction}",
            securityGroupId=group.id,
            referencedSecurityGroupId=group.id,
            ipProtocol="-1",
            description="EFA",
        )
    stack.make(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        "https",
        securityGroupId=group.id,
        cidrIpv4="0.0.0.0/0",
        ipProtocol="tcp",
        fromPort=443,
        toPort=443,
    )
    rules = ec2.describe_security_group_rules(Filters=_of(group))["SecurityGroupRules"]
    own = [
        rule["IsEgress"] for rule in rules if rule.get("ReferencedGroupInfo", {}).get("GroupId") == group.id
    ]
    assert sorted(own) == [False, True]
    assert [(r["CidrIpv4"], r["FromPort"]) for r in rules if r.get("CidrIpv4")] == [("0.0.0.0/0", 443)]
    default = stack.make("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "default", vpcId=vpc.id)
    assert default.id == vpc["defaultSecurityGroupId"]
    assert ec2.describe_security_group_rules(Filters=_of(default))["SecurityGroupRules"] == []


def _of(group: Any) -> list[dict[str, Any]]:
    return [{"Name": "group-id", "Values": [group.id]}]


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


def test_a_role_is_deleted_whatever_still_hangs_on_it(stack: Stack) -> None:
    role = stack.make("aws:iam/role:Role", "role", assumeRolePolicy=TRUST, description="nodes", path="/gpu/")
    assert role.id.startswith("role-")
    assert role["arn"].endswith(f":role/gpu/{role.id}")
    inline = stack.make("aws:iam/rolePolicy:RolePolicy", "inline", role=role.id, policy=ALLOW_S3)
    policy = stack.make("aws:iam/policy:Policy", "policy", policy=ALLOW_S3)
    stack.make("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "mine", role=role.id, policyArn=policy.id)
    amazons = "arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    stack.make(
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment", "amazons", role=role.id, policyArn=amazons
    )
    profile = stack.make("aws:iam/instanceProfile:InstanceProfile", "profile", role=role.id)
    iam = stack.clients("iam")
    assert iam.list_role_policies(RoleName=role.id)["PolicyNames"] == [inline["name"]]
    roles = iam.get_instance_profile(InstanceProfileName=profile.id)["InstanceProfile"]["Roles"]
    assert [entry["RoleName"] for entry in roles] == [role.id]
    narrower = ALLOW_S3.replace("GetObject", "ListBucket")
    for _ in range(6):  # IAM keeps five versions at most
        stack.change("policy", policy=narrower)
        stack.change("policy", policy=ALLOW_S3)
    stack.change("inline", role=role.id, policy=narrower)
    read = iam.get_role_policy(RoleName=role.id, PolicyName=inline["name"])["PolicyDocument"]
    assert read["Statement"][0]["Action"] == ["s3:ListBucket"]
    for name in ("role", "policy", "profile", "inline", "mine", "amazons"):  # the wrong order on purpose
        stack.delete(name)


def bucket_parts(stack: Stack, bucket: str) -> None:
    stack.make(
        "aws:s3/bucketVersioning:BucketVersioning",
        "versioning",
        bucket=bucket,
        versioningConfiguration={"status": "Enabled"},
    )
    stack.make(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "encryption",
        bucket=bucket,
        rules=[{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}, "bucketKeyEnabled": True}],
    )
    stack.make(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "private",
        bucket=bucket,
        blockPublicAcls=True,
        blockPublicPolicy=True,
        ignorePublicAcls=True,
        restrictPublicBuckets=True,
    )
    stack.make(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        "owner",
        bucket=bucket,
        rule={"objectOwnership": "BucketOwnerEnforced"},
    )
    stack.make("aws:s3/bucketPolicy:BucketPolicy", "tls", bucket=bucket, policy=tls_only(bucket))
    stack.make(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "lifecycle",
        bucket=bucket,
        transitionDefaultMinimumObjectSize="all_storage_classes_128K",
        rules=[
            {
                "id": "parts",
                "status": "Enabled",
                "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7},
            },
            {
                "id": "old",
                "status": "Enabled",
                "filter": {"prefix": "runs/"},
                "noncurrentVersionExpiration": {"noncurrentDays": 30},
            },
        ],
    )


def tls_only(bucket: str) -> str:
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:*"],
        "Resource": [f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_a_bucket_is_hardened_by_its_parts_and_goes_with_its_objects_where_asked(stack: Stack) -> None:
    bucket = stack.make("aws:s3/bucket:Bucket", "artifacts", bucket="artifacts-1", forceDestroy=True)
    assert bucket["bucketRegionalDomainName"] == f"artifacts-1.s3.{REGION}.amazonaws.com"
    bucket_parts(stack, bucket.id)
    s3 = stack.clients("s3")
    assert s3.get_bucket_versioning(Bucket=bucket.id)["Status"] == "Enabled"
    rule = s3.get_bucket_encryption(Bucket=bucket.id)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert (rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"], rule["BucketKeyEnabled"]) == (
        "aws:kms",
        True,
    )
    assert set(s3.get_public_access_block(Bucket=bucket.id)["PublicAccessBlockConfiguration"].values()) == {
        True
    }
    policy = s3.get_bucket_policy(Bucket=bucket.id)["Policy"]
    assert json.loads(policy) == json.loads(tls_only(bucket.id))
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket.id)["Rules"]
    assert [(r["ID"], r["Filter"]["Prefix"]) for r in rules] == [("parts", ""), ("old", "runs/")]
    body = {"bucket": bucket.id, "key": "groups/a/node.json", "contentType": "application/json"}
    stack.make("aws:s3/bucketObjectv2:BucketObjectv2", "document", content="{}", **body)
    stack.change("document", content='{"a":1}', **body)
    s3.put_object(Bucket=bucket.id, Key="runs/1/latest", Body=b"written by a node")
    read = s3.get_object(Bucket=bucket.id, Key=body["key"])
    assert (read["Body"].read(), read["ContentType"]) == (b'{"a":1}', "application/json")


def test_a_file_arrives_with_its_bytes(stack: Stack, tmp_path: Any) -> None:
    release = tmp_path / "release.tar"
    release.write_bytes(bytes(range(256)) * 1000)
    sha256 = hashlib.sha256(release.read_bytes()).hexdigest()
    source = Asset({SIGNATURE: rpc._special_asset_sig, "path": str(release), "hash": sha256})
    stack.make("aws:s3/bucket:Bucket", "bucket", bucket="b-1", forceDestroy=True)
    stack.make("aws:s3/bucketObjectv2:BucketObjectv2", "release", bucket="b-1", key="r.tar", source=source)
    body = stack.clients("s3").get_object(Bucket="b-1", Key="r.tar")["Body"].read()
    assert hashlib.sha256(body).hexdigest() == sha256


def test_a_bucket_with_foreign_objects_is_not_destroyed_unasked(stack: Stack) -> None:
    stack.make("aws:s3/bucket:Bucket", "data", bucket="data-1")
    stack.clients("s3").put_object(Bucket="data-1", Key="shard", Body=b"x")
    with pytest.raises(Fault, match=r"^urn:pulumi:local::p::aws:s3/bucket:Bucket::data: .*BucketNotEmpty"):
        stack.delete("data")
    stack.clients("s3").delete_object(Bucket="data-1", Key="shard")


def test_alarms_topics_logs_keys_and_parameters(stack: Stack) -> None:
    topic = stack.make("aws:sns/topic:Topic", "alerts", name="alerts", displayName="GPU alerts")
    stack.make(
        "aws:sns/topicSubscription:TopicSubscription",
        "mail",
        topic=topic.id,
        protocol="email",
        endpoint="ops@example.com",
    )
    stack.make("aws:sns/topicPolicy:TopicPolicy", "policy", arn=topic.id, policy=ALLOW_S3)
    metric = {
        "namespace": "AWS/AutoScaling",
        "metricName": "GroupInServiceInstances",
        "period": 60,
        "stat": "Minimum",
        "dimensions": {"AutoScalingGroupName": "nodes"},
    }
    alarm = {"comparisonOperator": "LessThanThreshold", "evaluationPeriods": 2, "alarmActions": [topic.id]}
    stack.make(
        "aws:cloudwatch/metricAlarm:MetricAlarm",
        "simple",
        **alarm,
        threshold=1,
        namespace="GpuTraining",
        metricName="SelfCheckFailed",
        dimensions={"AutoScalingGroupName": "nodes"},
        period=60,
        statistic="Sum",
        treatMissingData="notBreaching",
    )
    stack.make(
        "aws:cloudwatch/metricAlarm:MetricAlarm",
        "maths",
        **alarm,
        threshold=0,
        metricQueries=[
            {"id": "m1", "metric": metric},
            {"id": "e1", "expression": "m1 - 2", "label": "missing", "returnData": True},
        ],
    )
    stack.make(
        "aws:cloudwatch/dashboard:Dashboard",
        "board",
        dashboardName="gpu",
        dashboardBody=json.dumps({"widgets": []}),
    )
    logs = stack.make("aws:cloudwatch/logGroup:LogGroup", "logs", name="/gpu/nodes", retentionInDays=30)
    stack.make(
        "aws:cloudwatch/logMetricFilter:LogMetricFilter",
        "failed",
        logGroupName=logs.id,
        pattern="FAILED",
        metricTransformation={"name": "Failed", "namespace": "GpuTraining", "value": "1"},
    )
    key = stack.make("aws:kms/key:Key", "key", description="volumes", enableKeyRotation=True)
    stack.make("aws:kms/alias:Alias", "alias", name="alias/gpu", targetKeyId=key.id)
    stack.make("aws:ssm/parameter:Parameter", "image", name="/gpu/image", type="String", value="ami-1")
    cloudwatch = stack.clients("cloudwatch")
    alarms = {
        entry["AlarmName"].split("-")[0]: entry for entry in cloudwatch.describe_alarms()["MetricAlarms"]
    }
    assert alarms["simple"]["Dimensions"] == [{"Name": "AutoScalingGroupName", "Value": "nodes"}]
    assert [query["Id"] for query in alarms["maths"]["Metrics"]] == ["m1", "e1"]
    assert stack.clients("kms").describe_key(KeyId="alias/gpu")["KeyMetadata"]["KeyId"] == key.id
    assert stack.clients("logs").describe_log_groups()["logGroups"][0]["retentionInDays"] == 30
    stack.change("logs", name="/gpu/nodes", retentionInDays=7)
    assert stack.clients("logs").describe_log_groups()["logGroups"][0]["retentionInDays"] == 7
    state = stack.change("image", name="/gpu/image", type="String", value="ami-2")
    assert state["version"] == 2
    assert stack.clients("ssm").get_parameter(Name="/gpu/image")["Parameter"]["Value"] == "ami-2"
    assert all(stack.exists(name) for name in stack.held)
    stack.destroy()
    assert [name for name in stack.held if stack.exists(name)] == []


def test_a_flow_log_writes_to_its_log_group(stack: Stack) -> None:
    vpc, _, _ = network(stack)
    role = stack.make("aws:iam/role:Role", "role", assumeRolePolicy=TRUST)
    logs = stack.make("aws:cloudwatch/logGroup:LogGroup", "logs", name="/gpu/flow")
    stack.make(
        "aws:ec2/flowLog:FlowLog",
        "flow",
        vpcId=vpc.id,
        trafficType="ALL",
        iamRoleArn=role["arn"],
        logDestinationType="cloud-watch-logs",
        logDestination=logs["arn"],
    )
    assert stack.clients("ec2").describe_flow_logs()["FlowLogs"][0]["LogGroupName"] == "/gpu/flow"


def test_deleting_what_is_already_gone_succeeds(stack: Stack) -> None:
    network(stack)
    stack.make("aws:s3/bucket:Bucket", "bucket", bucket="b-1")
    stack.make("aws:iam/role:Role", "role", assumeRolePolicy=TRUST)
    stack.make("aws:sns/topic:Topic", "topic", name="t")
    stack.make("aws:cloudwatch/logGroup:LogGroup", "logs", name="/l")
    stack.make("aws:kms/key:Key", "key")
    stack.destroy()
    assert [name for name in stack.held if stack.exists(name)] == []
    stack.destroy()


def test_an_error_of_the_emulation_is_one_line_with_the_urn(stack: Stack) -> None:
    with pytest.raises(
        Fault, match=r"^urn:pulumi:local::p::aws:ec2/subnet:Subnet::s: .*InvalidVpcID"
    ) as fault:
        stack.make("aws:ec2/subnet:Subnet", "s", vpcId="vpc-12345678", cidrBlock="10.0.0.0/24")
    assert "\n" not in str(fault.value)
