"""The protocol, spoken over gRPC as the engine speaks it, without anything realised."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc

from localcloud.provider import aws, kubernetes
from localcloud.provider.declared import Declared
from localcloud.provider.kinds import Place
from localcloud.provider.service import Package
from localcloud.provider.serving import start
from localcloud.provider.tables import AWS
from localcloud.provider.values import UNKNOWN, Secret, decode, encode

ACCOUNT = "111122223333"
CONFIG = {
    "region": "eu-west-1",
    "allowedAccountIds": f'["{ACCOUNT}"]',
    "defaultTags": '{"tags":{"team":"x"}}',
}


class Engine(engine_pb2_grpc.EngineServicer):
    """The engine's log."""

    def __init__(self) -> None:
        self.lines: list[tuple[int, str]] = []

    def Log(self, request: Any, context: Any) -> Any:
        self.lines.append((request.severity, request.message))
        return empty_pb2.Empty()


@contextmanager
def listening(engine: Engine) -> Iterator[str]:
    server = grpc.server(futures.ThreadPoolExecutor(2))
    engine_pb2_grpc.add_EngineServicer_to_server(engine, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()


@contextmanager
def plugin(package: Package, engine: str | None = None) -> Iterator[Any]:
    server, port = start(package, engine)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield provider_pb2_grpc.ResourceProviderStub(channel)
    server.stop(None).wait()


def urn(type_: str, name: str = "thing", stack: str = "dev") -> str:
    return f"urn:pulumi:{stack}::p::{type_}::{name}"


def configure(stub: Any, stack: str = "dev") -> Any:
    request = provider_pb2.ConfigureRequest(
        args=encode(CONFIG), urn=urn("pulumi:providers:aws", stack=stack), acceptSecrets=True
    )
    return stub.Configure(request)


@pytest.fixture
def previewing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The AWS stand-in in preview mode, configured."""
    monkeypatch.setenv("GPU_TRAINING_STANDIN_MODE", "preview")
    with plugin(aws.PACKAGE) as stub:
        configure(stub)
        yield stub


def create(stub: Any, type_: str, inputs: dict[str, Any], *, preview: bool = True) -> dict[str, Any]:
    request = provider_pb2.CreateRequest(
        urn=urn(type_), type=type_, name="thing", properties=encode(inputs), preview=preview
    )
    return decode(stub.Create(request).properties)


def update(
    stub: Any, type_: str, state: dict[str, Any], old: dict[str, Any], new: dict[str, Any]
) -> dict[str, Any]:
    request = provider_pb2.UpdateRequest(
        id="lt-1",
        urn=urn(type_),
        type=type_,
        olds=encode(state),
        old_inputs=encode(old),
        news=encode(new),
        preview=True,
    )
    return decode(stub.Update(request).properties)


def fault(error: pytest.ExceptionInfo[grpc.RpcError]) -> str:
    assert isinstance(error.value, grpc.Call)
    text = error.value.details() or ""
    assert "\n" not in text
    return text


TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def test_at_preview_only_what_the_cloud_gives_is_unknown(previewing: Any) -> None:
    state = create(previewing, TEMPLATE, {"imageId": "ami-1", "tags": {"Name": "n"}})
    assert {key for key, value in state.items() if value is UNKNOWN} == {
        *("arn", "latestVersion", "defaultVersion", "name")
    }
    assert state["imageId"] == "ami-1"
    assert state["region"] == "eu-west-1"
    assert state["tagsAll"] == {"team": "x", "Name": "n"}


def test_a_given_name_is_known_at_preview(previewing: Any) -> None:
    assert create(previewing, "aws:s3/bucket:Bucket", {"bucket": "mine"})["bucket"] == "mine"
    assert create(previewing, "aws:s3/bucket:Bucket", {})["bucket"] is UNKNOWN


def test_a_secret_input_stays_secret(previewing: Any) -> None:
    state = create(previewing, "aws:ssm/parameter:Parameter", {"type": "String", "value": Secret("hunter2")})
    assert state["value"] == Secret("hunter2")


STATE = {"id": "lt-1", "arn": "arn:lt", "latestVersion": 3, "defaultVersion": 1, "name": "n"}


def test_an_update_makes_a_templates_next_version_unknown_and_keeps_the_rest(previewing: Any) -> None:
    old, new = {"name": "n", "imageId": "ami-1"}, {"name": "n", "imageId": "ami-2"}
    state = update(previewing, TEMPLATE, {**STATE, **old}, old, new)
    assert state["latestVersion"] is UNKNOWN
    assert (state["defaultVersion"], state["arn"], state["imageId"]) == (1, "arn:lt", "ami-2")


def test_changed_tags_make_no_new_version_of_a_template(previewing: Any) -> None:
    old, new = {"name": "n", "tags": {"a": "1"}}, {"name": "n", "tags": {"a": "2"}}
    assert update(previewing, TEMPLATE, {**STATE, **old}, old, new)["latestVersion"] == 3


def test_the_default_version_follows_where_it_is_asked_to(previewing: Any) -> None:
    old = {"name": "n", "imageId": "ami-1", "updateDefaultVersion": True}
    state = update(previewing, TEMPLATE, {**STATE, **old}, old, {**old, "imageId": "ami-2"})
    assert state["defaultVersion"] is UNKNOWN


def test_a_default_version_that_the_program_gives_is_known(previewing: Any) -> None:
    old = {"name": "n", "imageId": "ami-1", "defaultVersion": 1, "updateDefaultVersion": True}
    state = update(
        previewing, TEMPLATE, {**STATE, **old}, old, {**old, "imageId": "ami-2", "defaultVersion": 2}
    )
    assert state["defaultVersion"] == 2


def test_unknown_tags_make_all_tags_unknown_and_an_unknown_tag_only_itself(previewing: Any) -> None:
    whole = create(previewing, "aws:ec2/vpc:Vpc", {"tags": UNKNOWN})
    one = create(previewing, "aws:ec2/vpc:Vpc", {"tags": {"owner": UNKNOWN}})
    assert whole["tagsAll"] is UNKNOWN
    assert one["tagsAll"] == {"team": "x", "owner": UNKNOWN}


def test_an_input_that_was_taken_away_leaves_the_state(previewing: Any) -> None:
    old = {"name": "n", "keyName": "k"}
    assert "keyName" not in update(previewing, TEMPLATE, {**STATE, **old}, old, {"name": "n"})


def test_diff_tells_paths_kinds_and_order(previewing: Any) -> None:
    old = {"bucket": "b", "region": "eu-west-1", "tags": {"a": "1"}}
    new = {"bucket": "b", "region": "eu-west-2", "tags": {"a": "2", "b": "3"}}
    request = provider_pb2.DiffRequest(
        id="b",
        urn=urn("x"),
        type="aws:s3/bucket:Bucket",
        olds=encode(old),
        old_inputs=encode(old),
        news=encode(new),
    )
    answer = previewing.Diff(request)
    kinds = provider_pb2.PropertyDiff.Kind
    assert {path: kinds.Name(entry.kind) for path, entry in answer.detailedDiff.items()} == {
        "region": "UPDATE_REPLACE",
        "tags.a": "UPDATE",
        "tags.b": "ADD",
    }
    assert all(entry.inputDiff for entry in answer.detailedDiff.values())
    assert (list(answer.replaces), list(answer.diffs)) == (["region"], ["region", "tags"])
    assert answer.deleteBeforeReplace


@pytest.mark.parametrize("method", ["Create", "Update", "Delete"])
def test_preview_mode_creates_updates_and_deletes_nothing(previewing: Any, method: str) -> None:
    request = getattr(provider_pb2, f"{method}Request")(urn=urn(TEMPLATE), type=TEMPLATE)
    with pytest.raises(grpc.RpcError) as error:
        getattr(previewing, method)(request)
    assert "started for previews" in fault(error)


def test_a_stand_in_without_a_mode_is_refused_before_any_resource(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_TRAINING_STANDIN_MODE", raising=False)
    with plugin(aws.PACKAGE) as stub:
        checked = stub.CheckConfig(
            provider_pb2.CheckRequest(urn=urn("pulumi:providers:aws"), news=encode({}))
        )
        assert "GPU_TRAINING_STANDIN_MODE is not set" in checked.failures[0].reason
        with pytest.raises(grpc.RpcError) as error:
            configure(stub)
    assert "GPU_TRAINING_STANDIN_MODE is not set" in fault(error)


def test_the_use_of_a_stand_in_is_said_and_a_type_without_a_row_is_warned_of_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPU_TRAINING_STANDIN_MODE", "preview")
    engine = Engine()
    with listening(engine) as address, plugin(aws.PACKAGE, address) as stub:
        configure(stub)
        states = [create(stub, "aws:eks/cluster:Cluster", {"name": "k"}) for _ in range(2)]
    assert states[0] == {"name": "k", "region": "eu-west-1"}
    (info, said), (warning, unknown) = engine.lines
    assert (info, warning) == (engine_pb2.INFO, engine_pb2.WARNING)
    assert "stand-in aws provider" in said
    assert "no row for aws:eks/cluster:Cluster; add one in localcloud/provider/tables/" in unknown


@pytest.fixture
def declaring(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[Any]:
    """A local-mode stand-in of which every kind is kept as declared."""
    monkeypatch.setenv("GPU_TRAINING_STANDIN_MODE", "local")
    monkeypatch.setenv("GPU_TRAINING_LOCAL_ROOT", str(tmp_path))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/state")
    monkeypatch.setenv("GPU_TRAINING_LOCAL_ENDPOINT", "http://127.0.0.1:1")
    package = Package(
        name="aws",
        version="7.0.0",
        kind_of=AWS.get,
        place_of=lambda config, standing: Place("eu-west-1", ACCOUNT),
        backend_of=lambda place, standing: Declared(),
    )
    with plugin(package) as stub:
        configure(stub, "local")
        yield stub


def test_a_type_without_a_row_is_never_taken_for_created(declaring: Any) -> None:
    with pytest.raises(grpc.RpcError) as error:
        create(declaring, "aws:eks/cluster:Cluster", {"name": "k"}, preview=False)
    assert "no row for aws:eks/cluster:Cluster" in fault(error)


def test_a_declared_resource_gets_typed_values_that_stay_the_same(declaring: Any) -> None:
    first, second = (
        create(declaring, "aws:cloudwatch/compositeAlarm:CompositeAlarm", {}, preview=False) for _ in "12"
    )
    assert first == second
    assert first["alarmName"].startswith("thing-")
    assert first["arn"] == f"arn:aws:cloudwatch:eu-west-1:{ACCOUNT}:alarm:{first['alarmName']}"


def test_another_stack_than_local_is_refused_before_any_resource(declaring: Any) -> None:
    with pytest.raises(grpc.RpcError) as error:
        configure(declaring, "prod")
    assert "realises only the stack local, and this is prod" in fault(error)


def test_look_ups_answer_from_the_providers_own_settings(previewing: Any) -> None:
    token = "aws:index/getCallerIdentity:getCallerIdentity"
    answer = previewing.Invoke(provider_pb2.InvokeRequest(tok=token, args=encode({})))
    assert decode(getattr(answer, "return"))["accountId"] == ACCOUNT


def test_an_unknown_look_up_is_an_error_that_names_it(previewing: Any) -> None:
    with pytest.raises(grpc.RpcError) as error:
        previewing.Invoke(provider_pb2.InvokeRequest(tok="aws:eks/getCluster:getCluster", args=encode({})))
    assert "aws:eks/getCluster:getCluster" in fault(error)


def test_a_resource_that_the_stand_in_did_not_create_cannot_be_looked_up(previewing: Any) -> None:
    with pytest.raises(grpc.RpcError) as error:
        previewing.Read(
            provider_pb2.ReadRequest(id="vpc-1", urn=urn("aws:ec2/vpc:Vpc"), type="aws:ec2/vpc:Vpc")
        )
    assert "cannot look up" in fault(error)


def test_kubernetes_objects_are_previewed_as_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_TRAINING_STANDIN_MODE", "preview")
    release = {
        "chart": "kube-prometheus-stack",
        "namespace": "monitoring",
        "values": {"password": Secret("s")},
    }
    with plugin(kubernetes.PACKAGE) as stub:
        configure(stub)
        state = create(stub, "kubernetes:helm.sh/v3:Release", release)
        namespace = create(stub, "kubernetes:core/v1:Namespace", {"metadata": {"name": "monitoring"}})
    assert {key for key, value in state.items() if value is UNKNOWN} == {"name", "status", "resourceNames"}
    assert state["values"] == {"password": Secret("s")}
    assert namespace == {"metadata": {"name": "monitoring"}}
