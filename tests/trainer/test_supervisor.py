"""The workers of a generation as the agent sees them: who still runs, and who was killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from trainer.agent import supervisor
from trainer.agent.supervisor import Workers, owned_by
from trainer.contracts.worker import ExitReport, exit_file
from trainer.store import Store

from tests.local.cloud_kit import wait_until
from tests.trainer.kit import Bench, run_config, worker_config

# A launcher that does not notice what becomes of its two ranks, as torchrun does not for a while.
LAUNCHER = """
import os, subprocess, sys, time
for rank in "01":
    wait = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    print(subprocess.Popen(wait, env={**os.environ, "RANK": rank}).pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def two_ranks(tmp_path: Path) -> Iterator[tuple[Workers, list[int]]]:
    bench = Bench(tmp_path, "bucket", Store(region="eu-west-1"))
    config = worker_config(bench, run_config(), generation=1, world=2)
    workers = Workers(config, tmp_path / "gen", lambda *_: [sys.executable, "-S", "-c", LAUNCHER])
    workers.start()
    log = tmp_path / "gen" / "worker.log"
    wait_until(lambda: len(log.read_text().split()) == 2, "both ranks")
    workers.know_ranks()
    yield workers, [int(pid) for pid in log.read_text().split()]
    workers.kill()


def test_a_rank_killed_without_a_report_is_seen_although_torchrun_lives(
    two_ranks: tuple[Workers, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, pids = two_ranks
    assert workers.running()
    os.kill(pids[1], signal.SIGKILL)
    assert workers.running()  # the other one may still have something to report
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    wait_until(lambda: not workers.running(), "the end")
    assert workers.result() == ExitReport(code=32, message="killed before a report: rank 1", step=None)
    assert owned_by(workers.folder) == set()


def test_a_rank_that_ended_with_a_report_was_not_killed(
    two_ranks: tuple[Workers, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers, pids = two_ranks
    monkeypatch.setattr(supervisor, "LINGER_SECONDS", 0.0)
    report = ExitReport(code=0, message="done", step=3)
    exit_file(workers.folder, 1).write_text(report.to_json())
    os.kill(pids[1], signal.SIGKILL)
    wait_until(lambda: b"Z" in Path(f"/proc/{pids[1]}/stat").read_bytes(), "its end")
    assert workers.running()
