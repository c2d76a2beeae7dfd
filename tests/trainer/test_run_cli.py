"""`trainer run`: S3 calls alone; faults all at once; a name is used once; a fetched checkpoint is a verified one."""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from trainer.agent.board import utc_now
from trainer.cli import COMMANDS, build_parser, main
from trainer.contracts import keys
from trainer.contracts.cluster import Cluster, GroupInfo
from trainer.contracts.run import RunPointer, RunResult
from trainer.exit_codes import Exit
from trainer.models.user_wheel import hashed_name
from trainer.runs import control
from trainer.runs.status import MemberStatus, read_status
from trainer.runs.watch import members_table

from tests.trainer.kit import Bench, run_config
from tests.trainer.run_kit import board, checkpoint, conclude, train

SOURCE = Path(__file__).resolve().parents[2] / "trainer" / "src"
START = ["run", "start", "--nodes", "2", "--dataset", "numbers@v1", "--steps", "20"]


@pytest.fixture
def stack(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A stack with the group `gpu` (at most 3 nodes), the group `spare`, and numbers@v1."""
    bench.publish()
    groups = {
        "gpu": GroupInfo(auto_scaling_group="test-gpu", max_nodes=3),
        "spare": GroupInfo(auto_scaling_group="test-spare", max_nodes=1),
    }
    cluster = Cluster(
        stack="test",
        region="eu-central-1",
        artifacts_bucket=bench.bucket,
        groups=groups,
        datasets={"numbers": bench.location},
    )
    bench.store.put(bench.bucket, keys.cluster(), cluster.to_json().encode())
    monkeypatch.setenv("TRAINER_ARTIFACTS_BUCKET", bench.bucket)
    return bench


def run(*arguments: str) -> int:
    return main(list(arguments))


def start(name: str, *more: str) -> int:
    return run(*START, "--group", "gpu", "--run", name, *more)


# --- help


@pytest.mark.parametrize("module", COMMANDS)
def test_every_command_says_what_it_does(module: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = module.split(".")[1].removeprefix("cli_")
    with pytest.raises(SystemExit) as ended:
        build_parser().parse_args([name, "--help"])
    assert ended.value.code == 0 and len(capsys.readouterr().out) > 200


def test_help_teaches_and_loads_neither_torch_nor_boto3() -> None:
    code = (
        "import sys\nfrom trainer.cli import build_parser\ntext = build_parser().format_help()\n"
        "assert 'trainer run start' in text and 'Exit codes' in text\n"
        "print({'torch', 'boto3', 'numpy', 'pydantic'} & set(sys.modules))"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() in ("set()", "{'pydantic'}")


def test_without_a_stack_the_line_says_which_variable_to_set(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TRAINER_ARTIFACTS_BUCKET", raising=False)
    assert run("run", "list") == Exit.CONFIGURATION
    line = capsys.readouterr().err
    assert line.startswith("trainer: CONFIGURATION (2): ") and "TRAINER_ARTIFACTS_BUCKET" in line
    assert line.count("\n") == 1


# --- start


def test_start_writes_the_configuration_once_and_points_the_group(stack: Bench) -> None:
    assert start("one", "--set", "training.learningRate=0.01", "--on-finish", "release") == 0
    config = board(stack).config("one")
    assert config is not None and (config.nodes, config.groups, config.on_finish) == (2, ["gpu"], "release")
    assert config.training.learning_rate == 0.01
    pointer = board(stack).pointer("gpu")
    assert pointer is not None and (pointer.run, pointer.action) == ("one", "start")


def test_a_used_name_and_a_busy_group_are_refused(stack: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert start("one") == 0
    assert start("two") == Exit.CONFIGURATION
    assert 'group gpu is busy with run "one"' in capsys.readouterr().err
    assert board(stack).config("two") is None
    conclude(stack, "one")
    before = board(stack).config("one")
    assert start("one", "--steps", "5") == Exit.CONFIGURATION
    assert 'a run named "one" exists' in capsys.readouterr().err
    assert board(stack).config("one") == before
    assert start("two") == 0


def test_all_faults_of_a_file_are_told_at_once_with_the_nearest_match(
    stack: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "name: Bad Name\nnodes: many\ngroups: [gqu]\nonFinnish: keep\ncreatedAt: now\n"
        "training:\n  dataset: nubmers@v1\n  learningrate: 0.1\n  steps: 5\n  epochs: 2\n  checkpoint: {kep: 3}\n"
    )
    assert run("run", "start", "--config", str(file)) == Exit.CONFIGURATION
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "the run's configuration has 9 faults" in line
    for told in (
        "name: ",
        "nodes: ",
        "(given: 'many')",
        "onFinnish: unknown key; did you mean onFinish?",
        "training.learningrate: unknown key; did you mean learningRate?",
        "training.checkpoint.kep: unknown key; did you mean keep?",
        'groups: stack test has no group "gqu"; did you mean gpu?',
        'has no dataset "nubmers"; did you mean numbers?',
        "createdAt: is set by the command itself",
        "give either steps or epochs",
    ):
        assert told in line, told


def test_too_many_nodes_an_unnamed_group_and_an_unpublished_version_are_refused(
    stack: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start("big", "--nodes", "9") == Exit.CONFIGURATION
    assert "9 are more than the groups' maxNodes allow (3)" in capsys.readouterr().err
    assert run(*START, "--run", "where") == Exit.CONFIGURATION
    assert "name them" in capsys.readouterr().err
    assert start("old", "--dataset", "numbers@v0") == Exit.CONFIGURATION
    assert "numbers@v0 is not published" in capsys.readouterr().err
    assert board(stack).pointer("gpu") is None


def test_a_smallest_world_that_is_larger_than_the_whole_one_is_refused(
    stack: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert start("small", "--set", "elastic.minWorldNodes=3") == Exit.CONFIGURATION
    told = "elastic.minWorldNodes: the smallest world (3) is larger than the whole one (nodes: 2)"
    assert told in capsys.readouterr().err
    assert start("small", "--set", "elastic.minWorldNodes=0") == Exit.CONFIGURATION
    assert "elastic.minWorldNodes: " in capsys.readouterr().err
    assert start("small", "--set", "elastic.minWrldNodes=1") == Exit.CONFIGURATION
    assert "did you mean minWorldNodes?" in capsys.readouterr().err
    assert start("small", "--set", "elastic.minWorldNodes=2", "--set", "elastic.shrinkAfterSeconds=5") == 0
    config = board(stack).config("small")
    assert config is not None and config.elastic.min_world_nodes == 2
    assert config.elastic.shrink_after_seconds == 5


def test_status_tells_the_world_now_beside_the_whole_one(stack: Bench, capsys: Any) -> None:
    start("one", "--nodes", "3")
    capsys.readouterr()
    assert run("run", "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["world"], status["nodes"]) == (0, 3)
    train(stack, "one", done=3)  # two of them
    assert run("run", "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["world"], status["nodes"]) == (2, 3)
    assert run("run", "status") == 0
    assert "training, 2 of 3 nodes, generation 1" in capsys.readouterr().out.replace("\n", " ")


def test_a_users_wheel_is_uploaded_under_its_hash(stack: Bench, tmp_path: Path, capsys: Any) -> None:
    wheel = tmp_path / "my_model-1.0-py3-none-any.whl"
    wheel.write_bytes(b"a wheel")
    assert start("mine", "--model", "my_model.net:build", "--wheel", str(wheel)) == 0
    config = board(stack).config("mine")
    assert config is not None and config.training.user_wheel == hashed_name(wheel)
    stored = stack.store.get(stack.bucket, keys.user_wheel(hashed_name(wheel)))
    assert stored is not None and stored.body == b"a wheel"
    conclude(stack, "mine")
    assert start("other", "--wheel", str(tmp_path / "model.tar.gz")) == Exit.CONFIGURATION
    assert "is no wheel" in capsys.readouterr().err


# --- stop, resume


def test_stop_asks_for_a_save_and_resume_goes_on_under_the_same_configuration(
    stack: Bench, capsys: Any
) -> None:
    assert start("one") == 0
    assert run("run", "resume", "--run", "one") == Exit.CONFIGURATION  # not over yet
    assert run("run", "stop") == 0  # the run that the groups are at
    pointer = board(stack).pointer("gpu")
    assert pointer is not None and pointer.action == "stop"
    stack.store.put(stack.bucket, keys.member("one", "i-1"), b"{}")
    conclude(stack, "one", "stopped", step=7)
    assert run("run", "stop", "--run", "one") == Exit.CONFIGURATION
    assert 'run "one" is over already' in capsys.readouterr().err
    assert run("run", "resume", "--run", "one") == 0
    pointer = board(stack).pointer("gpu")
    assert pointer is not None and pointer.action == "start"
    assert board(stack).result("one") is None and board(stack).reports("one") == {}
    conclude(stack, "one", "finished")
    assert run("run", "resume", "--run", "one") == Exit.CONFIGURATION


def test_wait_ends_with_the_runs_own_exit_code(stack: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert start("one", "--wait", "0.1") == Exit.PEER_LOST  # nobody trains here
    assert "is not over after" in capsys.readouterr().err
    result = RunResult(
        run="one", status="failed", exit_code=20, message="shard x", step=0, epochs=0, finished_at="now"
    )
    board(stack).put_result(result)
    assert run("run", "status", "--run", "one", "--json") == 0
    status = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert status["state"] == "failed" and status["result"]["exitCode"] == 20


# --- status, logs, list


def test_status_tells_members_step_loss_and_the_time_left(
    stack: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    start("one")
    capsys.readouterr()
    assert run("run", "status") == 0
    assert "run one: waiting" in capsys.readouterr().out.replace("\n", " ")
    train(stack, "one", done=8)
    assert run("run", "status", "--json") == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["state"], status["generation"], status["etaSeconds"]) == ("training", 1, 6.0)
    assert status["progress"]["step"] == 8 and status["progress"]["loss"] == 1.6
    assert [(m["instanceId"], m["nodeRank"], m["state"]) for m in status["members"]] == [
        ("i-1", 0, "running"),
        ("i-2", 1, "running"),
    ]
    assert run("run", "status") == 0
    text = capsys.readouterr().out
    assert "step 8/20" in text and "i-1" in text


def test_what_a_node_says_is_shown_as_it_is(stack: Bench) -> None:
    start("one")
    config = control.require_config(board(stack), "one")
    status = read_status(board(stack), config)
    said = "[rank0] cannot read [/data]"
    member = MemberStatus("i-1", "gpu", "failed", 1, 0, 20, said)
    shown = io.StringIO()
    Console(file=shown, width=200).print(members_table(replace(status, members=[member])))
    assert said in shown.getvalue()


def test_logs_are_the_events_as_words_or_what_the_workers_printed(
    stack: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    start("one")
    train(stack, "one", done=2)
    capsys.readouterr()
    assert run("run", "logs") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[2].startswith("gen-0001 step: step 2, loss 1.9")
    assert run("run", "logs", "--worker") == 0
    assert capsys.readouterr().out == "gen-0001 i-2 hello from the worker\n"
    conclude(stack, "one")
    assert run("run", "logs", "--follow", "--json") == 0  # ends by itself: the run is over
    assert json.loads(capsys.readouterr().out.splitlines()[1].partition(" ")[2])["kind"] == "step"


def test_list_shows_every_run(stack: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    start("one")
    conclude(stack, "one")
    start("two")
    capsys.readouterr()
    assert run("run", "list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["run"], row["status"], row["step"]) for row in rows] == [
        ("one", "finished", 20),
        ("two", "open", None),
    ]
    assert run("run", "status", "--run", "three") == Exit.CONFIGURATION
    assert "trainer run list" in capsys.readouterr().err


# --- fetch


def test_fetch_brings_the_best_checkpoint_else_the_latest_every_byte_verified(
    stack: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    start("one")
    target = tmp_path / "got"
    assert run("run", "fetch", "--to", str(target)) == Exit.CHECKPOINT  # there is none yet
    latest = checkpoint(stack, "one", 20, b"newest")
    stack.store.put(stack.bucket, keys.latest("one"), latest.to_json().encode())
    capsys.readouterr()
    assert run("run", "fetch", "--to", str(target), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["which"], told["step"], told["verified"]) == ("latest", 20, True)
    best = checkpoint(stack, "one", 10, b"the best")
    stack.store.put(stack.bucket, keys.best("one"), best.to_json().encode())
    assert run("run", "fetch", "--to", str(tmp_path / "best")) == 0
    assert (tmp_path / "best" / "state.pt").read_bytes() == b"the best"
    assert {path.name for path in (tmp_path / "best").iterdir()} == {
        "state.pt",
        "manifest.json",
        "config.json",
    }
    assert run("run", "fetch", "--which", "latest", "--to", str(tmp_path / "latest")) == 0
    assert (tmp_path / "latest" / "state.pt").read_bytes() == b"newest"


def save_tied_weights(stack: Bench) -> dict[str, Any]:
    """As the latest checkpoint of run "one"; the model's state_dict."""
    import torch
    from trainer.train.checkpoint import Checkpoints
    from trainer.train.state import Part

    weights = {"table.weight": torch.rand(4, 3).t(), "half": torch.tensor([1.0, float("nan")]).half()}
    values = {f"model.{name}": value for name, value in weights.items()}
    writer = Checkpoints(stack.store, stack.bucket, run_config("one"), 1, 1, stack.root / "node")
    writer.save(20, 20, 0.1, Part(values, values, {"tied": {"head.weight": "table.weight"}}))
    return {**weights, "head.weight": weights["table.weight"]}


def test_fetch_exports_the_weights_as_safetensors(
    stack: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch
    from safetensors import safe_open

    start("one")
    saved = save_tied_weights(stack)
    capsys.readouterr()
    assert run("run", "fetch", "--to", str(tmp_path), "--safetensors", "--json") == 0
    exported = json.loads(capsys.readouterr().out)["files"][-1]
    assert exported["file"] == "model.safetensors"
    assert hashlib.sha256((tmp_path / "model.safetensors").read_bytes()).hexdigest() == exported["sha256"]
    manifest = (tmp_path / "manifest.json").read_bytes()
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert file.metadata()["step"] == "20"
        assert file.metadata()["manifest_sha256"] == hashlib.sha256(manifest).hexdigest()
        assert set(file.keys()) == set(saved)
        for name, value in saved.items():
            torch.testing.assert_close(file.get_tensor(name), value, rtol=0, atol=0, equal_nan=True)


def test_an_export_that_does_not_read_back_is_refused(
    stack: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.torch

    real = safetensors.torch.load_file

    def spoilt(path: Path) -> Any:
        return {name: value + 1 for name, value in real(path).items()}

    start("one")
    save_tied_weights(stack)
    monkeypatch.setattr(safetensors.torch, "load_file", spoilt)
    assert run("run", "fetch", "--to", str(tmp_path), "--safetensors") == Exit.CHECKPOINT
    assert "does not give back the weights" in capsys.readouterr().err
    assert not [*tmp_path.glob("model.safetensors*")]


def test_an_export_that_finds_no_room_is_one_line(
    stack: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from safetensors import SafetensorError

    def full(_tensors: Any, path: Path, **_more: Any) -> None:
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    start("one")
    save_tied_weights(stack)
    monkeypatch.setattr("safetensors.torch.save_file", full)
    assert run("run", "fetch", "--to", str(tmp_path), "--safetensors") == Exit.CHECKPOINT
    assert "No space left on device" in capsys.readouterr().err
    assert not [*tmp_path.glob("model.safetensors*")]


@pytest.mark.parametrize("name", ["../../outside", "/tmp/outside", "a/../../b", "..", ""])
def test_a_checkpoint_whose_manifest_names_another_place_writes_nothing_there(
    stack: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    start("one")
    latest = checkpoint(stack, "one", 20, b"newest")
    key = keys.checkpoint("one", 20, "manifest.json")
    there = stack.store.get(stack.bucket, key)
    assert there is not None
    manifest = json.loads(there.body)
    manifest["files"][0]["name"] = name
    body = json.dumps(manifest).encode()
    stack.store.put(stack.bucket, key, body)
    pointer = latest.model_copy(update={"manifest_sha256": hashlib.sha256(body).hexdigest()})
    stack.store.put(stack.bucket, keys.latest("one"), pointer.to_json().encode())
    assert run("run", "fetch", "--to", str(tmp_path / "a" / "b" / "got")) == Exit.CHECKPOINT
    assert "files.0.name: String should match pattern" in " ".join(capsys.readouterr().err.split())


def test_without_the_library_the_export_says_how_to_get_it(
    stack: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start("one")
    save_tied_weights(stack)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    assert run("run", "fetch", "--to", str(tmp_path), "--safetensors") == Exit.CONFIGURATION
    assert "pip install 'gpu-trainer[torch,safetensors]'" in capsys.readouterr().err


@pytest.mark.parametrize("spoilt", ["state.pt", "manifest.json"])
def test_a_checkpoint_that_is_not_what_was_saved_is_refused(
    stack: Bench, tmp_path: Path, spoilt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    start("one")
    pointer = checkpoint(stack, "one", 20, b"newest")
    stack.store.put(stack.bucket, keys.latest("one"), pointer.to_json().encode())
    stored = stack.store.get(stack.bucket, keys.checkpoint("one", 20, spoilt))
    assert stored is not None
    changed = stored.body.replace(b"newest", b"Newest").replace(b'"worldSize":2', b'"worldSize":3')
    stack.store.put(stack.bucket, keys.checkpoint("one", 20, spoilt), changed)
    assert run("run", "fetch", "--to", str(tmp_path / "got")) in (Exit.CHECKPOINT, Exit.S3)
    assert spoilt.partition(".")[0] in capsys.readouterr().err
    assert not (tmp_path / "got" / "state.pt").exists()


def test_the_pointer_of_a_run_that_was_replaced_is_told(
    stack: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    start("one")
    board(stack).put_pointer("gpu", RunPointer(run="two", action="start", updated_at=utc_now()))
    assert run("run", "stop", "--run", "one") == Exit.CONFIGURATION
    assert 'group gpu is not at run "one" but at two' in capsys.readouterr().err
