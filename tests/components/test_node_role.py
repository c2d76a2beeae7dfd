"""The nodes' rights: what they may read, write and ask for, and where their credentials are worth anything.

That these are exactly the calls that nodes make is compared in tests/trainer/test_recorded_calls.py.
"""

from __future__ import annotations

from typing import Any

import pytest
from trainer.contracts import keys

from components.bootstrap.node_document import METRIC_NAMESPACE
from components.compute.node_rights import node_statements, only_from_the_own_vpc, services_by_endpoint
from components.compute.node_role import NodeRole, NodeRoleArgs
from components.names import stack_names
from components.settings import load
from tests.components.kit import Recording, record
from tests.iam_rights import Access, allows
from tests.unit.stack_files import minimal

SHA = "a1" * 32
NODE = "i-0123456789abcdef0"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/1234"
BUCKET = "arn:aws:s3:::gputrain-test-artifacts-123456789012"
DATA = "arn:aws:s3:::gputrain-test-data-shapes-123456789012"
GROUPS = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:*:autoScalingGroupName"
LOGS = "arn:aws:logs:us-east-1:123456789012:log-group"
SECRETS = "arn:aws:secretsmanager:us-east-1:123456789012:secret"
CONFIG = {**minimal(), "datasets": [{"name": "shapes"}], "secrets": {"HF_TOKEN": "research/token"}}


def arguments(**changes: Any) -> NodeRoleArgs:
    names = stack_names(load("test", CONFIG))
    return NodeRoleArgs(names, "trainers", "gputrain-test-trainers", METRIC_NAMESPACE, **changes)


def role(**changes: Any) -> Recording:
    recording = record(lambda: NodeRole("node", arguments(**changes)))
    recording.assert_sound()
    return recording


def statements(config: dict[str, Any] = CONFIG) -> list[dict[str, Any]]:
    names = stack_names(load("test", config))
    return node_statements(names, "trainers", "gputrain-test-trainers", METRIC_NAMESPACE)


def allowed(action: str, resource: str, **context: str) -> bool:
    return allows(statements(), Access(action, resource, context))


def actions_of(service: str) -> set[str]:
    actions = {action for statement in statements() for action in statement["Action"]}
    return {action for action in actions if action.startswith(f"{service}:")}


class TestObjects:
    @pytest.mark.parametrize(
        "key",
        [
            keys.node_document("trainers", SHA),
            keys.run_pointer("trainers"),
            keys.cluster(),
            keys.trainer_release(SHA),
            keys.user_wheel("model-1.0-py3-none-any.whl"),
            keys.run_config("first"),
            keys.generation("first"),
            keys.member("first", NODE),
            keys.latest("first"),
            keys.checkpoint("first", 10, "state.pt"),
        ],
    )
    def test_what_a_node_reads(self, key: str) -> None:
        assert allowed("s3:GetObject", f"{BUCKET}/{key}")

    @pytest.mark.parametrize(
        "key",
        [
            keys.node_document("trainers", SHA),
            keys.run_pointer("trainers"),
            keys.trainer_release(SHA),
            keys.user_wheel("model.whl"),
            keys.run_config("first"),
            keys.cluster(),
        ],
    )
    def test_what_tells_a_node_what_to_do_it_cannot_write(self, key: str) -> None:
        assert not allowed("s3:PutObject", f"{BUCKET}/{key}")

    def test_it_deletes_checkpoints_only(self) -> None:
        assert allowed("s3:DeleteObject", f"{BUCKET}/{keys.checkpoint('first', 10, 'state.pt')}")
        for key in (keys.latest("first"), keys.run_config("first"), keys.result("first"), keys.cluster()):
            assert not allowed("s3:DeleteObject", f"{BUCKET}/{key}")

    def test_it_sees_nothing_of_another_group(self) -> None:
        assert not allowed("s3:GetObject", f"{BUCKET}/{keys.node_document('others', SHA)}")
        assert not allowed("s3:PutObject", f"{BUCKET}/{keys.boot_selfcheck('others', NODE)}")

    def test_datasets_are_read_and_never_written(self) -> None:
        shard = f"{DATA}/datasets/shapes/v1/shard-0.npz"
        assert allowed("s3:GetObject", shard)
        assert not allowed("s3:PutObject", shard) and not allowed("s3:DeleteObject", shard)
        assert not allowed("s3:GetObject", f"{DATA}-2/datasets/shapes/v1/shard-0.npz")

    def test_lists_are_of_these_prefixes_and_absent_objects_are_told_from_forbidden_ones(self) -> None:
        """S3 answers 404 only to who may list; that question has no prefix, so the condition must not demand
        one.
        """
        assert allowed("s3:ListBucket", BUCKET)
        for prefix in ("releases/", "groups/trainers/", "runs/first/members/"):
            assert allowed("s3:ListBucket", BUCKET, **{"s3:prefix": prefix})
        for prefix in ("", "groups/", "groups/others/"):
            assert not allowed("s3:ListBucket", BUCKET, **{"s3:prefix": prefix})
        assert allowed("s3:ListBucket", DATA, **{"s3:prefix": "datasets/shapes/v1/"})

    def test_the_file_system_s_facts_are_read_where_there_is_one(self) -> None:
        lustre = {"zone": "us-east-1a", "capacityGib": 1200}
        facts = Access("s3:GetObject", f"{BUCKET}/lustre.json")
        assert allows(statements({**CONFIG, "lustre": lustre}), facts)
        assert not allows(statements(), facts)


class TestCalls:
    def test_on_groups_are_limited_to_its_own(self) -> None:
        for action in actions_of("autoscaling") - {"autoscaling:DescribeAutoScalingInstances"}:
            assert allowed(action, f"{GROUPS}/gputrain-test-trainers".replace("*", "12ab"))
            assert not allowed(action, f"{GROUPS}/gputrain-test-trainers-2".replace("*", "12ab"))

    def test_metrics_go_to_one_namespace(self) -> None:
        assert allowed("cloudwatch:PutMetricData", "*", **{"cloudwatch:namespace": "GpuTraining"})
        for context in ({"cloudwatch:namespace": "AWS/EC2"}, {}):
            assert not allowed("cloudwatch:PutMetricData", "*", **context)

    @pytest.mark.parametrize("group", ["nodes", "sessions"])
    def test_logs_go_to_the_nodes_and_the_sessions_group(self, group: str) -> None:
        stream = f"{LOGS}:/gputrain-test/{group}:log-stream:x"
        assert allowed("logs:CreateLogStream", stream) and allowed("logs:PutLogEvents", stream)
        assert not allowed("logs:PutLogEvents", stream.replace(group, "flow-logs"))
        assert not allowed("logs:GetLogEvents", stream)

    def test_messages_go_to_the_topic_of_runs(self) -> None:
        topic = "arn:aws:sns:us-east-1:123456789012:gputrain-test-runs"
        assert allowed("sns:Publish", topic) and not allowed("sns:Publish", topic.replace("runs", "alerts"))

    def test_the_named_secrets_are_read_and_no_other(self) -> None:
        assert allowed("secretsmanager:GetSecretValue", f"{SECRETS}:research/token-AbCdEf")
        for other in ("research/token-2-AbCdEf", "research/token", "research/other-AbCdEf"):
            assert not allowed("secretsmanager:GetSecretValue", f"{SECRETS}:{other}")
        without = {key: value for key, value in CONFIG.items() if key != "secrets"}
        assert not [s for s in statements(without) if "secretsmanager:GetSecretValue" in s["Action"]]

    def test_no_action_and_no_s3_resource_is_a_wildcard(self) -> None:
        for statement in statements():
            assert all("*" not in action for action in statement["Action"])
            if any(action.startswith("s3:") for action in statement["Action"]):
                assert all(resource.startswith((BUCKET, DATA)) for resource in statement["Resource"])


class TestCredentialsOutsideTheVpc:
    NODE: dict[str, str] = {  # noqa: RUF012 - read only
        "ec2:SourceInstanceARN": f"arn:aws:ec2:us-east-1:123456789012:instance/{NODE}",
        "aws:Ec2InstanceSourceVpc": "vpc-1",
        "aws:ViaAWSService": "false",
    }

    def may(self, nat: str, action: str, resource: str, **context: str) -> bool:
        config = {**CONFIG, "network": {**CONFIG["network"], "nat": nat}}
        rights = statements(config)
        bound = only_from_the_own_vpc(rights, services_by_endpoint(load("test", config)))
        return allows([*rights, *bound], Access(action, resource, {**self.NODE, **context}))

    def test_are_worth_nothing_for_s3(self) -> None:
        """Every VPC that the stack makes has S3's gateway endpoint, so every call of a node has aws:SourceVpc."""
        read = ("s3:GetObject", f"{BUCKET}/runs/first/config.json")
        for nat in ("none", "single", "per-az"):
            assert self.may(nat, *read, **{"aws:SourceVpc": "vpc-1"})
            assert not self.may(nat, *read, **{"aws:SourceVpc": "vpc-2"})
            assert not self.may(nat, *read)  # from the internet

    def test_are_worth_nothing_at_all_where_all_calls_go_through_endpoints(self) -> None:
        read = ("secretsmanager:GetSecretValue", f"{SECRETS}:research/token-AbCdEf")
        assert self.may("none", *read, **{"aws:SourceVpc": "vpc-1"})
        assert not self.may("none", *read)

    def test_are_let_be_where_calls_go_through_nat(self) -> None:
        """Such calls come from the gateway's public address and say nothing of the VPC: a Deny would hit nodes."""
        assert self.may("single", "secretsmanager:GetSecretValue", f"{SECRETS}:research/token-AbCdEf")

    def test_are_not_asked_after_where_a_service_calls_for_the_node(self) -> None:
        context = {"aws:ViaAWSService": "true"}
        assert self.may("none", "s3:GetObject", f"{BUCKET}/runs/first/config.json", **context)

    def test_are_let_be_in_a_vpc_that_exists_already(self) -> None:
        existing = {"vpcId": "vpc-0123456789abcdef0", "subnetIds": {"us-east-1a": "subnet-0123456789abcdef0"}}
        network = {"cidr": "10.0.0.0/16", "availabilityZones": ["us-east-1a"], "existing": existing}
        settings = load("test", {**CONFIG, "network": network})
        assert only_from_the_own_vpc(statements(), services_by_endpoint(settings)) == []


class TestTheRole:
    def test_is_assumed_by_ec2_and_bounded_where_the_account_demands_it(self) -> None:
        boundary = "arn:aws:iam::123456789012:policy/boundary"
        found = role(permission_boundary_arn=boundary).one("aws:iam/role:Role")
        (trust,) = found.policy("assumeRolePolicy")
        assert trust["Principal"] == {"Service": ["ec2.amazonaws.com"]}
        assert found.inputs["permissionsBoundary"] == boundary
        assert "permissionsBoundary" not in role().one("aws:iam/role:Role").inputs

    def test_has_the_statements_and_the_bound_in_its_one_policy(self) -> None:
        found = role(services_by_endpoint=("s3",)).one("aws:iam/rolePolicy:RolePolicy").policy()
        assert found == [*statements(), *only_from_the_own_vpc(statements(), ("s3",))]

    def test_session_manager_reaches_nodes_without_the_right_to_read_parameters(self) -> None:
        attachment = role().one("aws:iam/rolePolicyAttachment:RolePolicyAttachment").inputs
        assert attachment["policyArn"].endswith(":policy/AmazonSSMManagedEC2InstanceDefaultPolicy")

    def test_a_key_is_used_through_its_services_only_and_not_at_all_where_none_is_named(self) -> None:
        policies = role(kms_key_arn=KEY_ARN).of_type("aws:iam/rolePolicy:RolePolicy")
        (statement,) = next(p for p in policies if p.inputs["name"] == "key").policy()
        assert statement["Resource"] == [KEY_ARN]
        for service, may in {"s3": True, "sns": True, "secretsmanager": True, "ec2": False}.items():
            context = {"kms:ViaService": f"{service}.us-east-1.amazonaws.com"}
            assert allows([statement], Access("kms:Decrypt", KEY_ARN, context)) == may
        assert not allows([statement], Access("kms:Decrypt", KEY_ARN))
        assert len(role().of_type("aws:iam/rolePolicy:RolePolicy")) == 1
        assert not actions_of("kms")
