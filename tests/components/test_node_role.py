"""The nodes' rights: every call that user data and the agent make, and not one more."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import pytest
from trainer.contracts import keys

from components.bootstrap.node_document import METRIC_NAMESPACE
from components.bootstrap.user_data import SCRIPT
from components.compute.node_role import NodeRole, NodeRoleArgs, node_statements
from components.names import stack_names
from components.settings import load
from tests.components.kit import ROOT, Recording, record
from tests.unit.stack_files import minimal

SHA = "a1" * 32
NODE = "i-0123456789abcdef0"
KEY_ARN = "arn:aws:kms:us-east-1:123456789012:key/1234"
BUCKET = "arn:aws:s3:::gputrain-test-artifacts-123456789012"
DATA = "arn:aws:s3:::gputrain-test-data-shapes-123456789012"
GROUPS = "arn:aws:autoscaling:us-east-1:123456789012:autoScalingGroup:*:autoScalingGroupName"


def arguments(**changes: Any) -> NodeRoleArgs:
    config = {**minimal(), "datasets": [{"name": "shapes"}]}
    names = stack_names(load("test", config))
    return NodeRoleArgs(names, "trainers", "gputrain-test-trainers", METRIC_NAMESPACE, **changes)


def role(**changes: Any) -> Recording:
    recording = record(lambda: NodeRole("node", arguments(**changes)))
    recording.assert_sound()
    return recording


def allowed(action: str, resource: str) -> bool:
    """Whether IAM would let a node do it, conditions aside; there is no Deny among the statements."""
    return any(
        action in statement["Action"]
        and any(fnmatchcase(resource, pattern) for pattern in statement["Resource"])
        for statement in node_statements(arguments())
    )


def actions_of(service: str) -> set[str]:
    actions = {action for statement in node_statements(arguments()) for action in statement["Action"]}
    return {action.partition(":")[2] for action in actions if action.startswith(f"{service}:")}


class TestObjects:
    @pytest.mark.parametrize(
        "key",
        [
            keys.node_document("trainers", SHA),
            keys.run_pointer("trainers"),
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
            keys.boot_selfcheck("trainers", NODE),
            keys.run_selfcheck("first", NODE),
            keys.member("first", NODE),
            keys.generation("first"),
            keys.checkpoint("first", 10, "state.pt"),
            keys.latest("first"),
            keys.best("first"),
            keys.run_log("first", 1, NODE, "events.jsonl"),
            keys.result("first"),
        ],
    )
    def test_what_a_node_writes(self, key: str) -> None:
        assert allowed("s3:PutObject", f"{BUCKET}/{key}")

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
        shard = f"{DATA}/{keys.dataset_shard('shapes', 'v1', 'shard-0.npz')}"
        assert allowed("s3:GetObject", shard)
        assert not allowed("s3:PutObject", shard) and not allowed("s3:DeleteObject", shard)

    def test_lists_are_of_these_prefixes_and_absent_objects_are_told_from_forbidden_ones(self) -> None:
        """S3 answers 404 only to who may list; that question has no prefix, so the condition must not demand
        one.
        """
        lists = [s for s in node_statements(arguments()) if s["Action"] == ["s3:ListBucket"]]
        assert [(s["Resource"], s["Condition"]) for s in lists] == [
            ([BUCKET], {"StringLikeIfExists": {"s3:prefix": ["releases/*", "groups/trainers/*", "runs/*"]}}),
            ([DATA], {"StringLikeIfExists": {"s3:prefix": ["datasets/shapes/*"]}}),
        ]


class TestCalls:
    def test_are_those_of_the_script_and_the_agent(self) -> None:
        script = SCRIPT.read_text()
        trainer = ROOT / "trainer/src/trainer"
        agent = "".join(path.read_text() for path in (trainer / "agent").glob("*.py"))
        agent = agent.replace("self.lookups.", "autoscaling.")  # a second client of Auto Scaling
        # The shipper of log lines knows one client only.
        agent += (trainer / "obs/cloudwatch.py").read_text().replace("self._client.", "logs.")
        for service in ("autoscaling", "cloudwatch", "logs"):
            called = {
                "".join(word.title() for word in c.split("-")) for c in _calls_of_script(script, service)
            }
            called |= {"".join(w.title() for w in c.split("_")) for c in _calls_of_agent(agent, service)}
            assert actions_of(service) == called, service

    def test_on_groups_are_limited_to_its_own(self) -> None:
        unlimited = {"DescribeAutoScalingInstances"}  # knows no resources
        for action in actions_of("autoscaling") - unlimited:
            assert allowed(f"autoscaling:{action}", f"{GROUPS}/gputrain-test-trainers")
            assert not allowed(f"autoscaling:{action}", f"{GROUPS}/gputrain-test-trainers-2")

    def test_metrics_go_to_one_namespace(self) -> None:
        (statement,) = [s for s in node_statements(arguments()) if "cloudwatch:PutMetricData" in s["Action"]]
        assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": ["GpuTraining"]}}

    def test_logs_go_to_one_group(self) -> None:
        stream = "arn:aws:logs:us-east-1:123456789012:log-group:/gputrain-test/nodes:log-stream:x"
        assert allowed("logs:PutLogEvents", stream)
        assert not allowed("logs:PutLogEvents", stream.replace("/nodes", "/flow-logs"))

    def test_no_action_and_no_s3_resource_is_a_wildcard(self) -> None:
        for statement in node_statements(arguments()):
            assert all("*" not in action for action in statement["Action"])
            if any(action.startswith("s3:") for action in statement["Action"]):
                assert all(resource.startswith((BUCKET, DATA)) for resource in statement["Resource"])


class TestTheRole:
    def test_is_assumed_by_ec2_and_bounded_where_the_account_demands_it(self) -> None:
        boundary = "arn:aws:iam::123456789012:policy/boundary"
        found = role(permission_boundary_arn=boundary).one("aws:iam/role:Role")
        (trust,) = found.policy("assumeRolePolicy")
        assert trust["Principal"] == {"Service": ["ec2.amazonaws.com"]}
        assert found.inputs["permissionsBoundary"] == boundary
        assert "permissionsBoundary" not in role().one("aws:iam/role:Role").inputs

    def test_session_manager_reaches_nodes_without_the_right_to_read_parameters(self) -> None:
        attachment = role().one("aws:iam/rolePolicyAttachment:RolePolicyAttachment").inputs
        assert attachment["policyArn"].endswith(":policy/AmazonSSMManagedEC2InstanceDefaultPolicy")

    def test_a_key_is_used_through_s3_only_and_not_at_all_where_none_is_named(self) -> None:
        policies = role(kms_key_arn=KEY_ARN).of_type("aws:iam/rolePolicy:RolePolicy")
        (statement,) = next(p for p in policies if p.inputs["name"] == "key").policy()
        assert statement["Resource"] == [KEY_ARN]
        assert statement["Action"] == ["kms:Decrypt", "kms:GenerateDataKey"]
        assert statement["Condition"] == {"StringEquals": {"kms:ViaService": ["s3.us-east-1.amazonaws.com"]}}
        assert len(role().of_type("aws:iam/rolePolicy:RolePolicy")) == 1
        assert not actions_of("kms")


def _calls_of_script(text: str, service: str) -> set[str]:
    return set(re.findall(rf"(?:call|ask [0-9]+) {service} ([a-z-]+)", text))


def _calls_of_agent(text: str, service: str) -> set[str]:
    return set(re.findall(rf"\b{service}\.([a-z_]+)\(", text))
