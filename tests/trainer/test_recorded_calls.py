"""Rights, endpoints and calls, compared both ways.

Nodes and researchers do all that they do, against real APIs, and every call is recorded. Each must be allowed by the
role or the policy; each right must be used by somebody, or be explained here; where there is no NAT, each service that
nodes call has an endpoint, and each endpoint is of a service that they call.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
import torch
from trainer.agent.board import utc_now
from trainer.cli import build_parser, main
from trainer.contracts import keys
from trainer.contracts.node_document import SelfCheckSettings
from trainer.contracts.run import RunPointer
from trainer.data.sync import sync_dataset
from trainer.disks.__main__ import read_lustre
from trainer.errors import ConfigurationError, DatasetError, StoreError
from trainer.exit_codes import Exit
from trainer.models.user_wheel import install_user_wheel
from trainer.obs.cloudwatch import LogShipper
from trainer.store import Store, sha256_of
from trainer.train.checkpoint import Checkpoints
from trainer.train.saved_state import SavedState
from trainer.train.state import Part

from components.bootstrap.node_document import METRIC_NAMESPACE
from components.bootstrap.user_data import SCRIPT
from components.compute.node_rights import node_statements, only_from_the_own_vpc
from components.identity.researchers import researcher_statements
from components.names import stack_names
from components.network.plan import node_services
from components.settings import load
from localcloud.aws.server import AwsServer
from tests.iam_rights import Access, allows, like, matches
from tests.local.cloud_kit import REGION, client, wait_until
from tests.trainer import agent_kit
from tests.trainer.agent_kit import Cloud, RunningAgent, cloud
from tests.trainer.call_recorder import Asked, Call, recorded
from tests.trainer.kit import Bench
from tests.trainer.run_kit import checkpoint, conclude, train
from tests.unit.stack_files import minimal

CONFIG: dict[str, Any] = {
    **minimal(),
    "datasets": [{"name": "numbers"}],
    "lustre": {"zone": "us-east-1a", "capacityGib": 1200},
    "secrets": {"HF_TOKEN": "research/token"},
    "gpuGroups": [{**minimal()["gpuGroups"][0], "name": "gpu"}],
}
SETTINGS = load("test", CONFIG)
NAMES = stack_names(SETTINGS)
NODE_RIGHTS = node_statements(NAMES, "gpu", NAMES.auto_scaling_group("gpu"), METRIC_NAMESPACE)
# As a call of a node looks where all of them go through endpoints.
ON_THE_NODE = {
    "ec2:SourceInstanceARN": "arn:aws:ec2:us-east-1:123456789012:instance/i-1",
    "aws:Ec2InstanceSourceVpc": "vpc-1",
    "aws:SourceVpc": "vpc-1",
    "aws:ViaAWSService": "false",
}
PART_BYTES = 5 << 20  # the least that S3 takes

# Rights that no recorded call uses, by action and a part of the resource, each with its reason.
NODE_RIGHTS_OF_OTHERS = {
    ("logs:CreateLogStream", "/sessions:"): "Session Manager's agent opens a session's stream",
    ("logs:PutLogEvents", "/sessions:"): "Session Manager's agent writes what is typed and shown",
    ("logs:DescribeLogStreams", "/sessions:"): "Session Manager's agent looks whether the stream is there",
    ("logs:DescribeLogGroups", "*"): "Session Manager's agent looks whether the group is encrypted",
    ("s3:AbortMultipartUpload", "/runs/*"): "the SDK, when a large checkpoint's upload fails half-way",
}
RESEARCHER_RIGHTS_OF_OTHERS = {
    ("s3:AbortMultipartUpload", "/releases/user/*"): "the SDK, when a large wheel's upload fails half-way",
    ("s3:AbortMultipartUpload", "/datasets/*"): "the SDK, when a large shard's upload fails half-way",
}
ENDPOINTS_OF_OTHERS = {
    "ssm": "Session Manager's agent registers the node",
    "ssmmessages": "Session Manager's agent: sessions",
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with AwsServer(tick_seconds=0.05) as aws:
        client("secretsmanager", aws.endpoint).create_secret(Name="research/token", SecretString="a token")
        client("sns", aws.endpoint).create_topic(Name=NAMES.runs_topic)
        client("logs", aws.endpoint).create_log_group(logGroupName=NAMES.node_log_group)
        yield aws.endpoint


@contextmanager
def principal(name: str, endpoint: str, folder: Path) -> Iterator[list[Call]]:
    """The SDK's own credentials are this one's; what the test itself does has others, and is not recorded."""
    with pytest.MonkeyPatch.context() as patch:
        for variable, value in {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": name,
            "AWS_SECRET_ACCESS_KEY": "test",
            "FAKE_WORLD": str(folder / "world"),
        }.items():
            patch.setenv(variable, value)
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials of whoever was first
        with recorded() as calls:
            yield calls


@pytest.fixture(scope="module")
def node_calls(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> list[Access]:
    """A node's life: boot, two runs, an interruption; and one that fails its self-check."""
    folder = tmp_path_factory.mktemp("nodes")
    with principal("node", endpoint, folder) as calls, cloud(endpoint, folder, 2, 1) as made:
        made.store = Store(client("s3", endpoint))
        calls.clear()  # the dataset was published by whoever
        made.secrets = dict(NAMES.secrets)
        made.runs_topic_arn = NAMES.arn("sns", NAMES.runs_topic)
        good, bad = sorted(made.states)
        agent = boot(made, good, slow=True)
        made.run("first", nodes=1, steps=3, on_finish="keep")
        assert made.result("first").status == "finished"
        made.run("second", nodes=1, steps=1000, seconds=0.02)
        wait_until(lambda: made.step("second") > 3, "some steps")
        made.board.put_pointer("gpu", RunPointer(run="second", action="stop", updated_at=utc_now()))
        assert made.result("second").status == "stopped"
        agent.imds.interrupt()
        assert agent.join() == Exit.STOPPED_SAVED
        made.self_check = SelfCheckSettings(max_replacements=0)
        assert boot(made, bad, "fail", Exit.DEVICE).join() == Exit.DEVICE
        write_logs()
        keep_checkpoints(made, folder)
        with pytest.raises(ConfigurationError):
            install_user_wheel(Store(region=REGION), made.bucket, "my_model.whl", folder / "wheel")
        with pytest.raises(StoreError):
            read_lustre(made.document(), "lustre.json")
        with pytest.raises(DatasetError):
            sync_dataset(Store(region=REGION), made.document().datasets["numbers"], "numbers", "v9", folder)
        done = list(calls)
    asked = Asked(NAMES, "gpu")
    by_nodes = [access for call in done if call.principal == "node" for access in asked.for_call(call)]
    return [*by_nodes, *calls_of_the_script(asked)]


@pytest.fixture(scope="module")
def researcher_calls(endpoint: str, tmp_path_factory: pytest.TempPathFactory) -> list[Access]:
    """Every subcommand of `trainer dataset` and `trainer run`, at least once."""
    folder = tmp_path_factory.mktemp("researcher")
    with principal("researcher", endpoint, folder) as calls, cloud(endpoint, folder, 0, 2) as made:
        made.store = Store(client("s3", endpoint))
        bench = Bench(folder, made.bucket, made.store)
        calls.clear()
        wheel = folder / "my_model-1.0-py3-none-any.whl"
        wheel.write_bytes(b"x" * (PART_BYTES + 1))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TRAINER_ARTIFACTS_BUCKET", made.bucket)
            patch.setattr("trainer.store.MULTIPART_BYTES", PART_BYTES)
            run = "--run", "first"
            ask("dataset", "make-sample", folder / "shapes", "--samples", 64, "--test-samples", 16)
            ask("dataset", "convert", folder / "shapes", folder / "shapes-tar", "--to", "tar")
            (folder / "book.txt").write_text("a line of a book\n" * 99)
            ask("dataset", "import", "text", folder / "book.txt", folder / "book")
            ask("dataset", "publish", folder / "source", "numbers@v2")
            ask("dataset", "sync", "numbers@v2", folder / "synced")
            ask("dataset", "verify", folder / "synced")
            ask(
                *("run", "start", *run, "--nodes", 2, "--dataset", "numbers@v2", "--steps", 20),
                *("--wheel", wheel, "--scale"),
            )
            train(bench, "first", 10)
            ask("run", "list")
            ask("run", "status")
            ask("run", "logs", *run)
            pointer = checkpoint(bench, "first", 10, b"a state")
            for key in (keys.latest("first"), keys.best("first")):
                made.store.put(made.bucket, key, pointer.to_json().encode())
            ask("run", "fetch", *run, "--to", folder / "fetched")
            assert main(["report", "first", "--to", str(folder / "report.html")]) == 0
            ask("run", "stop", *run)
            conclude(bench, "first", "stopped", 10)
            ask("run", "resume", *run)
        done = list(calls)
    asked = Asked(NAMES, "gpu")
    return [access for call in done if call.principal == "researcher" for access in asked.for_call(call)]


ASKED: set[tuple[str, str]] = set()


def ask(*arguments: object) -> None:
    words = [str(argument) for argument in arguments]
    assert main(words) == 0, words
    ASKED.add((words[0], words[1]))


def boot(made: Cloud, instance_id: str, *verdict: Any, slow: bool = False) -> RunningAgent:
    """With clients of the node's own; ``slow``: the self-check takes longer than the time between two signs of life."""
    with pytest.MonkeyPatch.context() as patch:
        if slow:
            quick = agent_kit.selfcheck_that
            patch.setattr("trainer.agent.boot.HEARTBEAT_SECONDS", 0.1)
            patch.setattr(agent_kit, "selfcheck_that", lambda *given: delayed(quick(*given)))
        kept, made.store = made.store, Store(region=REGION)
        try:
            agent = made.boot(instance_id, *verdict)
            if slow:
                wait_until(lambda: made.states[instance_id] == "InService", "the node to be in service")
            return agent
        finally:
            made.store = kept


def delayed(argv: Any) -> Any:
    return lambda *given: ["sh", "-c", 'sleep 1.2; exec "$@"', "sh", *argv(*given)]


def write_logs() -> None:
    shipper = LogShipper.connect(REGION, NAMES.node_log_group, "gpu/i-1/agent")
    shipper.write("a line")
    shipper.close()


def keep_checkpoints(made: Cloud, folder: Path) -> None:
    """What rank 0 does: a fresh start, saves of which old ones are dropped, a best one, a large one in parts, and the
    next generation's start from it.
    """
    run = made.run("kept", nodes=1)
    run = run.model_copy(update={"training": run.training.model_copy(update={"checkpoint": _keep_one(run)})})
    store = Store(region=REGION)
    first = Checkpoints(store, made.bucket, run, 1, 1, folder / "checkpoints")
    assert first.begin(1, lambda step, why: None, SavedState.weights) is None
    weights = {"model.a": torch.zeros(1)}
    state = Part(weights, weights, {"tied": {}})
    first.mark_best(first.save(1, 10, 0.1, state), 0.5)
    for step in (2, 3, 4):
        first.save(step, 10 * step, 0.1 * step, state)
    second = Checkpoints(store, made.bucket, run, 2, 1, folder / "elsewhere")
    assert second.begin(1, lambda step, why: None, SavedState.weights) is not None
    large = folder / "large"
    large.write_bytes(b"x" * (PART_BYTES + 1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.store.MULTIPART_BYTES", PART_BYTES)
        store.upload(made.bucket, keys.checkpoint("kept", 5, "state.pt"), large, sha256_of(large))


def _keep_one(run: Any) -> Any:
    return run.training.checkpoint.model_copy(update={"keep": 1})


def calls_of_the_script(asked: Asked) -> list[Access]:
    """User data's calls and the root helper's, read from the text, on what the script gives them."""
    found = set(re.findall(r"(?:\bcall|\bask [0-9]+) ([a-z0-9]+) ([a-z-]+)", SCRIPT.read_text()))
    assert ("s3", "cp") in found and ("autoscaling", "terminate-instance-in-auto-scaling-group") in found
    calls = []
    for service, command in sorted(found):
        action = f"{service}:{''.join(word.title() for word in command.split('-'))}"
        if (service, command) == (
            "s3",
            "cp",
        ):  # looked up, then read; what is absent is told from what is forbidden
            for key in (keys.node_document("gpu", "0" * 64), keys.trainer_release("0" * 64)):
                calls += [
                    Access("s3:GetObject", asked.object(key)),
                    Access("s3:ListBucket", asked.bucket(key)),
                ]
        elif service == "autoscaling":
            calls.append(Access(action, asked.group()))
        elif service == "cloudwatch":
            calls.append(Access(action, "*", {"cloudwatch:namespace": METRIC_NAMESPACE}))
        elif service == "logs":
            calls.append(Access(action, asked.log_stream("gpu/i-1/bootstrap")))
        else:
            raise AssertionError(f"user data calls {service} {command}, and nobody here knows on what")
    return calls


def unused(
    statements: Sequence[Any], calls: Sequence[Access], explained: dict[tuple[str, str], str]
) -> list[tuple[str, str]]:
    """Rights, each an action on a resource of an Allow, that no call used and nobody explained."""
    rights = [
        (action, resource, statement)
        for statement in statements
        if statement["Effect"] == "Allow"
        for action in statement["Action"]
        for resource in statement["Resource"]
    ]
    return [
        (action, resource)
        for action, resource, statement in rights
        if not any(
            call.action == action and like(resource, call.resource) and matches(statement, call)
            for call in calls
        )
        and not any(action == what and part in resource for what, part in explained)
    ]


class TestNodes:
    def test_may_do_all_that_they_do(self, node_calls: list[Access]) -> None:
        bound = [*NODE_RIGHTS, *only_from_the_own_vpc(NODE_RIGHTS, ("*",))]
        on_the_node = [Access(c.action, c.resource, {**ON_THE_NODE, **c.context}) for c in node_calls]
        assert not {(c.action, c.resource) for c in on_the_node if not allows(bound, c)}

    def test_do_all_that_they_may(self, node_calls: list[Access]) -> None:
        assert not unused(NODE_RIGHTS, node_calls, NODE_RIGHTS_OF_OTHERS)

    def test_need_no_right_that_is_explained_away(self, node_calls: list[Access]) -> None:
        """An explanation that a recorded call has overtaken, or whose right is gone, is taken out."""
        needed = _explained(NODE_RIGHTS, node_calls, NODE_RIGHTS_OF_OTHERS)
        assert needed == NODE_RIGHTS_OF_OTHERS.keys()

    def test_reach_every_service_that_they_call_by_an_endpoint_and_no_other_has_one(
        self, node_calls: list[Access]
    ) -> None:
        called = {call.action.partition(":")[0] for call in node_calls}
        names = {"cloudwatch": "monitoring"}  # an endpoint's name, where it is not IAM's prefix
        # S3's gateway endpoint is always there.
        by_calls = {names.get(service, service) for service in called} - {"s3"}
        assert by_calls | ENDPOINTS_OF_OTHERS.keys() == set(node_services(SETTINGS))

    def test_reach_secrets_only_where_there_are_any(self) -> None:
        without = load("test", {key: value for key, value in CONFIG.items() if key != "secrets"})
        assert set(node_services(SETTINGS)) - set(node_services(without)) == {"secretsmanager"}


class TestResearchers:
    def test_may_do_all_that_they_do(self, researcher_calls: list[Access]) -> None:
        rights = researcher_statements(NAMES)
        assert not {(c.action, c.resource) for c in researcher_calls if not allows(rights, c)}

    def test_do_all_that_they_may(self, researcher_calls: list[Access]) -> None:
        assert not unused(researcher_statements(NAMES), researcher_calls, RESEARCHER_RIGHTS_OF_OTHERS)

    def test_have_no_command_that_was_not_recorded(self, researcher_calls: list[Access]) -> None:
        assert researcher_calls
        assert {(name, command) for name in ("dataset", "run") for command in _subcommands(name)} == ASKED


def _explained(
    statements: Sequence[Any], calls: Sequence[Access], explained: dict[tuple[str, str], str]
) -> set[tuple[str, str]]:
    left = unused(statements, calls, {})
    return {
        (what, part)
        for what, part in explained
        for action, resource in left
        if action == what and part in resource
    }


def _subcommands(name: str) -> set[str]:
    (commands,) = [a for a in build_parser()._actions if isinstance(a, argparse._SubParsersAction)]
    parser: argparse.ArgumentParser = commands.choices[name]
    (below,) = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return set(below.choices)
