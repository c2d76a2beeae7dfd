"""What watches a stack's money: budget, stop, tags, the topic of runs' ends, and an estimate that forgets nothing."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from components.cost import estimate
from components.cost.budget import PROGRAM
from components.names import stack_tags
from components.settings import load
from tests.components.kit import Recording, record_program, record_stack
from tests.unit.stack_files import mapping_of, minimal

STACKS = ("local", "dev", "staging", "prod")
BUDGET = {"monthlyUsd": 20000.0, "emails": ["gpu@example.com"], "stopAtPercent": 100}
ACCOUNT = "123456789012"
ALERTS = f"arn:aws:mock:us-east-1:{ACCOUNT}:monitoring-cloudwatch-alerts"
STOP_TOPIC = f"arn:aws:mock:us-east-1:{ACCOUNT}:budget-stop"
STOP_KINDS = ("aws:lambda/", "aws:budgets/")
TOPIC, TOPIC_POLICY = "aws:sns/topic:Topic", "aws:sns/topicPolicy:TopicPolicy"
SUBSCRIPTION = "aws:sns/topicSubscription:TopicSubscription"
FUNCTION = "aws:lambda/function:Function"


def run_minimal(**changes: Any) -> Recording:
    return record_program("test", {**minimal(), **changes})


@cache
def plain() -> Recording:
    return run_minimal()


@cache
def with_budget() -> Recording:
    boundary = f"arn:aws:iam::{ACCOUNT}:policy/boundary"
    return run_minimal(budget=BUDGET, kms={"mode": "create"}, permissionBoundaryArn=boundary)


class TestBudget:
    @pytest.fixture
    def recording(self) -> Recording:
        return with_budget()

    def test_is_a_sound_tree_of_components(self, recording: Recording) -> None:
        recording.assert_sound()

    def test_watches_the_stacks_tag_month_by_month(self, recording: Recording) -> None:
        inputs = recording.one("aws:budgets/budget:Budget").inputs
        assert inputs["costFilters"] == [
            {"name": "TagKeyValue", "values": ["user:gpu-training:stack$gputrain-test"]}
        ]
        assert (inputs["budgetType"], inputs["timeUnit"]) == ("COST", "MONTHLY")
        assert (inputs["limitAmount"], inputs["limitUnit"]) == ("20000.00", "USD")
        told = [(n["notificationType"], n["threshold"]) for n in inputs["notifications"]]
        assert told == [("ACTUAL", 80), ("ACTUAL", 100), ("FORECASTED", 100)]
        assert all(n["subscriberEmailAddresses"] == ["gpu@example.com"] for n in inputs["notifications"])
        assert [n.get("subscriberSnsTopicArns") for n in inputs["notifications"]] == [
            None,
            [STOP_TOPIC],
            None,
        ]

    def test_comes_after_the_topic_lets_it_publish(self, recording: Recording) -> None:
        waits_for = recording.one("aws:budgets/budget:Budget").depends_on
        assert {"budget-stop-policy", "budget-stop-subscription"} <= waits_for

    def test_only_budgets_of_this_account_stop_the_groups(self, recording: Recording) -> None:
        allow, deny = recording.one(TOPIC_POLICY, "budget-stop-policy").policy()
        assert allow["Principal"] == {"Service": ["budgets.amazonaws.com"]}
        assert allow["Condition"] == {
            "StringEquals": {"aws:SourceAccount": [ACCOUNT]},
            "ArnLike": {"aws:SourceArn": [f"arn:aws:budgets::{ACCOUNT}:*"]},
        }
        assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": ["false"]}})
        permission = recording.one("aws:lambda/permission:Permission").inputs
        assert (permission["principal"], permission["sourceArn"]) == ("sns.amazonaws.com", STOP_TOPIC)

    def test_the_function_is_the_file_that_is_tested(self, recording: Recording) -> None:
        inputs = recording.one(FUNCTION).inputs
        assert (inputs["runtime"], inputs["architectures"]) == ("python3.12", ["arm64"])
        assert inputs["handler"] == "budget_stop.handler"
        [(name, asset)] = inputs["code"]["assets"].items()
        assert (name, asset["text"]) == ("budget_stop.py", PROGRAM.read_text())
        groups = json.loads(inputs["environment"]["variables"]["GROUPS"])
        assert groups == {"gputrain-test-trainers": 0}
        assert "reservedConcurrentExecutions" not in inputs

    def test_the_function_may_stop_these_groups_and_nothing_else(self, recording: Recording) -> None:
        role = recording.one("aws:iam/role:Role", "budget-stop-role")
        assert role.inputs["permissionsBoundary"] == f"arn:aws:iam::{ACCOUNT}:policy/boundary"
        [trust] = role.policy("assumeRolePolicy")
        assert trust["Principal"] == {"Service": ["lambda.amazonaws.com"]} and "Condition" not in trust
        stop, log = recording.one("aws:iam/rolePolicy:RolePolicy", "budget-stop-rights").policy()
        assert stop["Action"] == ["autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup"]
        assert stop["Resource"] == [
            f"arn:aws:autoscaling:us-east-1:{ACCOUNT}:autoScalingGroup:*:"
            "autoScalingGroupName/gputrain-test-trainers"
        ]
        assert log["Action"] == ["logs:CreateLogStream", "logs:PutLogEvents"]
        group = recording.one("aws:cloudwatch/logGroup:LogGroup", "budget-stop-log").inputs
        assert log["Resource"] == [f"arn:aws:logs:us-east-1:{ACCOUNT}:log-group:{group['name']}:*"]
        assert group["retentionInDays"] == 30
        logging = recording.one(FUNCTION).inputs["loggingConfig"]
        assert logging["logGroup"] == group["name"]

    def test_a_stop_that_failed_is_tried_again_and_then_told(self, recording: Recording) -> None:
        retries = recording.one("aws:lambda/functionEventInvokeConfig:FunctionEventInvokeConfig").inputs
        assert retries["destinationConfig"] == {"onFailure": {"destination": ALERTS}}
        assert retries["maximumRetryAttempts"] == 2
        publish, key = recording.one("aws:iam/rolePolicy:RolePolicy", "budget-stop-failures").policy()
        assert (publish["Action"], publish["Resource"]) == (["sns:Publish"], [ALERTS])
        assert key["Condition"] == {"StringEquals": {"kms:ViaService": ["sns.us-east-1.amazonaws.com"]}}

    def test_without_a_stop_there_is_nothing_but_the_budget(self) -> None:
        recording = run_minimal(budget={k: v for k, v in BUDGET.items() if k != "stopAtPercent"})
        mine = [r.type for r in recording.custom() if r.type.startswith(STOP_KINDS)]
        assert mine == ["aws:budgets/budget:Budget"]

    def test_without_a_budget_there_is_nothing(self) -> None:
        assert not [r for r in plain().custom() if r.type.startswith(STOP_KINDS)]


class TestRunEvents:
    def test_people_subscribe_to_the_topic_that_nodes_are_told_of(self) -> None:
        recording = run_minimal(monitoring={"alerts": {"runEmails": ["a@example.org", "b@example.org"]}})
        topic = recording.one(TOPIC, "run-events-topic")
        assert topic.inputs["name"] == "gputrain-test-runs"
        told = [s for s in recording.of_type(SUBSCRIPTION) if s.parent == topic.parent]
        assert {s.inputs["endpoint"] for s in told} == {"a@example.org", "b@example.org"}
        documents = {
            o.inputs["key"].partition("/")[0]: json.loads(o.inputs["content"])
            for o in recording.of_type("aws:s3/bucketObjectv2:BucketObjectv2")
            if "content" in o.inputs
        }
        assert documents["groups"]["runsTopicArn"] == f"arn:aws:sns:us-east-1:{ACCOUNT}:gputrain-test-runs"
        # Where a new price replaces no node.
        assert documents["cluster.json"]["groups"]["trainers"]["prices"] == {
            "g6.xlarge": {
                "onDemandUsd": 0.8048,
                "spotLowUsd": 0.4104,
                "spotHighUsd": 0.8048,
                "asOf": "2025-06-28",
            }
        }
        assert "prices" not in documents["groups"]

    def test_it_is_encrypted_with_the_stacks_own_key_where_there_is_one(self) -> None:
        key = "arn:aws:mock:us-east-1:123456789012:encryption-key"
        assert record_stack("prod").one(TOPIC, "run-events-topic").inputs["kmsMasterKeyId"] == key
        assert (
            record_stack("local").one(TOPIC, "run-events-topic").inputs["kmsMasterKeyId"] == "alias/aws/sns"
        )

    def test_nothing_is_published_in_the_clear(self) -> None:
        [deny] = plain().one(TOPIC_POLICY, "run-events-policy").policy()
        assert (deny["Effect"], deny["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": ["false"]}})

    def test_nodes_start_after_it(self) -> None:
        recording = plain()
        [group] = recording.of_type("aws:autoscaling/group:Group")
        assert {"run-events-topic", "run-events-policy"} <= group.depends_on


@pytest.mark.parametrize("stack", STACKS)
class TestCostTags:
    def test_everything_gets_the_stacks_tag_and_the_users_tags(self, stack: str) -> None:
        """By the provider's default tags; what launches nodes says it again for what the nodes bring."""
        tags = stack_tags(load(stack, mapping_of(stack)))
        assert "gpu-training:stack" in tags and "environment" in tags
        recording = record_stack(stack)
        provider = recording.one("pulumi:providers:aws")
        assert json.loads(provider.inputs["defaultTags"])["tags"] == tags
        aws = [r for r in recording.custom() if r.type.startswith("aws:")]
        assert all(provider.urn in r.request.provider for r in aws)

    def test_nodes_volumes_and_interfaces_have_them_too(self, stack: str) -> None:
        tags = stack_tags(load(stack, mapping_of(stack)))
        templates = record_stack(stack).of_type("aws:ec2/launchTemplate:LaunchTemplate")
        assert templates
        for template in templates:
            said = {spec["resourceType"]: spec["tags"] for spec in template.inputs["tagSpecifications"]}
            for kind in ("instance", "volume", "network-interface"):
                assert tags.items() <= said[kind].items(), (template.name, kind)
        for group in record_stack(stack).of_type("aws:autoscaling/group:Group"):
            passed_on = {t["key"]: t["value"] for t in group.inputs["tags"] if t["propagateAtLaunch"]}
            assert tags.items() <= passed_on.items()


@pytest.mark.parametrize("stack", [*STACKS, "everything"])
def test_the_estimate_counts_what_the_program_declares(stack: str) -> None:
    """A resource that is billed by the hour or the month and is in no line would be a surprise on the bill."""
    config = everything() if stack == "everything" else mapping_of(stack)
    recording = record_program("test", config) if stack == "everything" else record_stack(stack)
    lines = {line.what: line.count for line in estimate(load(stack, config)).lines}

    def counted(what: str) -> float:
        return sum(count for name, count in lines.items() if name.startswith(what))

    assert counted("NAT gateways") == len(recording.of_type("aws:ec2/natGateway:NatGateway"))
    assert counted("public IPv4") == len(recording.of_type("aws:ec2/eip:Eip"))
    endpoints = [
        e
        for e in recording.of_type("aws:ec2/vpcEndpoint:VpcEndpoint")
        if e.inputs["vpcEndpointType"] == "Interface"
    ]
    assert counted("interface endpoints, one") == sum(len(e.inputs["subnetIds"]) for e in endpoints)
    alarms = recording.of_type("aws:cloudwatch/metricAlarm:MetricAlarm")
    watched = sum(
        max(1, sum("metric" in query for query in alarm.inputs.get("metricQueries", []))) for alarm in alarms
    )
    assert counted("CloudWatch alarms") == watched
    assert counted("CloudWatch dashboards") == len(recording.of_type("aws:cloudwatch/dashboard:Dashboard"))
    assert counted("KMS keys") == len(recording.of_type("aws:kms/key:Key"))
    file_systems = recording.of_type("aws:fsx/lustreFileSystem:LustreFileSystem")
    assert counted("GiB of FSx") == sum(f.inputs["storageCapacity"] for f in file_systems)
    assert not {r.type for r in recording.custom()} & OTHERWISE_BILLED


# Billed by the hour and in no line: whoever declares one of these adds its line.
OTHERWISE_BILLED = {
    "aws:eks/cluster:Cluster",
    "aws:ec2/instance:Instance",
    "aws:ebs/volume:Volume",
    "aws:lb/loadBalancer:LoadBalancer",
    "aws:amp/workspace:Workspace",
    "aws:grafana/workspace:Workspace",
    "aws:secretsmanager/secret:Secret",
    "aws:ec2transitgateway/transitGateway:TransitGateway",
}


def everything() -> dict[str, Any]:
    one = minimal()["gpuGroups"][0]
    return {
        **minimal(),
        "kms": {"mode": "create"},
        "budget": BUDGET,
        "network": {**minimal()["network"], "nat": "none", "endpoints": ["ecr.api"]},
        "secrets": {"HF_TOKEN": "research/hugging-face"},
        "gpuGroups": [
            {**one, "idleStopMinutes": 30, "purchase": {"spotPercent": 100}, "fallbackGroup": "steady"},
            {**one, "name": "steady"},
        ],
    }
