"""Local mode: roles, alarms, topics, logs, keys and parameters; deletion and faults of every kind."""

from __future__ import annotations

import json

import pytest

from localcloud.provider.service import Fault
from tests.unit.emulated_stack import ALLOW_S3, TRUST, Stack, network


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


def test_a_topic_that_loses_its_key_is_no_longer_encrypted(stack: Stack) -> None:
    topic = stack.make("aws:sns/topic:Topic", "alerts", name="alerts", kmsMasterKeyId="alias/aws/sns")
    stack.change("alerts", name="alerts")
    attributes = stack.clients("sns").get_topic_attributes(TopicArn=topic.id)["Attributes"]
    assert not attributes.get("KmsMasterKeyId")


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
