"""The whole local path as a person meets it: brought up, looked at, interrupted, broken, taken down.

One stack serves most of this file; the tests below stand in the order of its life.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest
from trainer.contracts.run import RunResult

from localcloud import daemons
from localcloud.facts import Facts
from localcloud.faults.node import LiveNode
from localcloud.processes import Identity
from localcloud.stack import METRICS_PORT, PROBE_ADDRESS, LocalStack
from localcloud.summary import SCHEMA_FILE
from localcloud.toolchain import ROOT, paths

LIMIT_SECONDS = 600


@dataclass
class Bed:
    local: Path

    def make(self, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """Run one of the `make` commands to its end, as the Makefile does."""
        argv = [sys.executable, "-m", f"localcloud.{command}", "--local", str(self.local), *options]
        return subprocess.run(
            argv,
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )

    @property
    def stack(self) -> LocalStack:
        return LocalStack(paths(), self.local)

    def trainer(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        env = self.stack.environment(self.stack.researcher())
        argv = [sys.executable, "-m", "trainer", *arguments]
        return subprocess.run(
            argv, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
        )

    def in_service(self) -> tuple[str, ...]:
        return self.stack.groups()[0].in_service


def environment() -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("GPU_TRAINING_LOCAL")}
    return {**env, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "trainer" / "src")])}


def leavings(local: Path) -> list[Identity]:
    return daemons.find_leavings(local)


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    bed = Bed(tmp_path_factory.mktemp("local") / ".local")
    try:
        done = bed.make("up")
        assert done.returncode == 0, done.stdout + done.stderr
        yield bed
    finally:
        bed.make("down", "--force")
        assert leavings(bed.local) == []


def wait_for(what: str, holds: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.3)


def result_of(facts: Facts, run: str) -> RunResult:
    wait_for(f"the end of {run}", lambda: facts.run_result(run) is not None, 240)
    result = facts.run_result(run)
    assert result is not None
    return result


def test_the_summary_keeps_to_its_schema_and_to_its_promises(bed: Bed) -> None:
    summary = json.loads((bed.local / "summary.json").read_text())
    jsonschema.validate(summary, json.loads(SCHEMA_FILE.read_text()))
    assert [node["selfcheck"]["verdict"] for node in summary["nodes"]] == ["pass", "pass"]
    assert sorted(node["lifecycle"] for node in summary["nodes"]) == ["on-demand", "spot"]
    assert all(node["selfcheck"]["matmulTflops"] > 0 for node in summary["nodes"])
    assert summary["loss"]["last"] <= 0.8 * summary["loss"]["first"]
    assert summary["checkpoint"] == {**summary["checkpoint"], "step": 200, "verified": True}
    assert summary["scrape"] == {"declared": 2, "up": 2}


def test_a_second_up_changes_nothing_and_says_so(bed: Bed) -> None:
    before, nodes = (bed.local / "summary.json").read_text(), bed.in_service()
    done = bed.make("up")
    assert done.returncode == 0, done.stderr
    assert "nothing changed" in done.stdout
    assert (bed.local / "summary.json").read_text() == before
    assert bed.in_service() == nodes


def test_a_used_run_name_is_refused(bed: Bed) -> None:
    done = bed.trainer("run", "start", "--run", "sample", "--config", "trainer/examples/sample_run.yaml")
    assert done.returncode == 2
    assert "sample" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_result_can_be_fetched_and_is_verified(bed: Bed, tmp_path: Path) -> None:
    done = bed.trainer("run", "fetch", "--run", "sample", "--to", str(tmp_path / "result"))
    assert done.returncode == 0, done.stderr
    assert any(path.suffix == ".distcp" for path in (tmp_path / "result").rglob("*"))


def test_a_spot_notice_loses_no_step(bed: Bed) -> None:
    before = set(bed.in_service())
    done = bed.make("rehearse", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["lostSteps"] == 0
    assert report["resumedAtStep"] == report["stoppedAtStep"] > 0
    assert 0 < report["noticeToSaveSeconds"] <= report["noticeToStopSeconds"]
    assert report["idleSecondsOfOthers"] > 0
    node = json.loads((bed.local / "nodes" / report["noticedNode"] / "node.json").read_text())
    assert node["exitCode"] == 75
    after = set(bed.in_service())
    assert report["noticedNode"] not in after
    assert len(after & before) == 1, "the other node stayed"
    assert len(after) == 2, "the replacement came"


def test_a_killed_worker_resumes_from_the_last_complete_checkpoint(bed: Bed) -> None:
    nodes = bed.in_service()
    config = [
        "--config",
        "trainer/examples/rehearsal_run.yaml",
        "--set",
        "training.checkpoint.everySeconds=1",
    ]
    started = bed.trainer("run", "start", "--run", "killed", *config)
    assert started.returncode == 0, started.stderr
    facts = bed.stack.facts()
    wait_for("a checkpoint", lambda: facts.checkpoint("killed").verified)
    workers = LiveNode(bed.local, nodes[-1]).workers()
    assert workers
    os.kill(workers[-1].pid, signal.SIGKILL)
    result = result_of(facts, "killed")
    assert (result.status, result.step) == ("finished", 300)
    resumed = next(event for event in facts.events("killed", 2) if event["kind"] == "started")
    assert resumed["step"] > 0
    assert bed.in_service() == nodes, "no node was replaced for a killed worker"


def test_a_corrupted_shard_ends_the_run_with_its_name_and_keeps_the_nodes(bed: Bed, tmp_path: Path) -> None:
    nodes = bed.in_service()
    assert bed.trainer("dataset", "make-sample", str(tmp_path / "s"), "--samples", "512").returncode == 0
    published = bed.trainer("dataset", "publish", str(tmp_path / "s"), "shapes@broken")
    assert published.returncode == 0, published.stderr
    facts, bucket = bed.stack.facts(), bed.stack.outputs()["datasetBuckets"]["shapes"]
    listed = facts.s3.list_objects_v2(Bucket=bucket, Prefix="datasets/shapes/broken/train")["Contents"]
    key = listed[0]["Key"]
    body = bytearray(facts.s3.get_object(Bucket=bucket, Key=key)["Body"].read())
    body[len(body) // 2] ^= 1
    facts.s3.put_object(Bucket=bucket, Key=key, Body=bytes(body))
    config = ["--config", "trainer/examples/sample_run.yaml", "--dataset", "shapes@broken"]
    assert bed.trainer("run", "start", "--run", "broken", *config).returncode == 0
    result = result_of(facts, "broken")
    assert (result.status, result.exit_code) == ("failed", 20)
    assert key.rsplit("/", 1)[1] in result.message
    time.sleep(3)  # time for a replacement to begin, if there were one
    assert bed.in_service() == nodes


def test_a_run_that_releases_scales_its_group_in(bed: Bed) -> None:
    config = ["--config", "trainer/examples/sample_run.yaml", "--steps", "20", "--on-finish", "release"]
    assert bed.trainer("run", "start", "--run", "release", *config).returncode == 0
    assert result_of(bed.stack.facts(), "release").status == "finished"
    wait_for("the group to be empty", lambda: bed.stack.groups()[0].desired == 0 and bed.in_service() == ())


def test_down_leaves_no_process_and_no_state(bed: Bed) -> None:
    done = bed.make("down")
    assert done.returncode == 0, done.stdout + done.stderr
    assert leavings(bed.local) == []
    assert not bed.local.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_up_leaves_nothing_running(tmp_path: Path, number: signal.Signals) -> None:
    local = tmp_path / ".local"
    argv = [sys.executable, "-m", "localcloud.up", "--local", str(local)]
    process = subprocess.Popen(
        argv,
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # As in the foreground of a terminal: what a shell starts in the background ignores Ctrl-C, and hands that on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    wait_for("its first process", lambda: len(leavings(local)) > 0)
    time.sleep(1.0)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    wait_for("everything to end", lambda: leavings(local) == [], 60)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert errors.strip().splitlines()[-1].startswith("make up: interrupted; nothing is left running")
        assert "Traceback" not in errors


def test_a_port_in_use_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind((PROBE_ADDRESS, METRICS_PORT))  # as for one that is bound to every address
        taken.listen()
        done = Bed(tmp_path / ".local").make("up")
    assert done.returncode == 1
    assert "port 9400 is in use" in done.stderr
    assert "Traceback" not in done.stderr
    assert leavings(tmp_path / ".local") == []


def test_up_for_another_stack_names_the_way_to_a_real_account(tmp_path: Path) -> None:
    done = Bed(tmp_path / ".local").make("up", "--stack", "prod")
    assert done.returncode == 2
    assert "pulumi up --stack prod" in done.stderr
    assert not (tmp_path / ".local").exists()
