"""When silence is a hang, and what is told of the processes that hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trainer.agent.pace import Pace
from trainer.agent.watchdog import RankProcess, Watchdog, ask_for_stacks, describe, rank_processes
from trainer.contracts.worker import WorkerEvent
from trainer.errors import ConfigurationError

from tests.local.cloud_kit import wait_until

PACE = Pace()


def event(kind: Any, **fields: Any) -> WorkerEvent:
    return WorkerEvent(kind=kind, time=0.0, **fields)


def test_before_the_first_step_ten_minutes_are_no_hang() -> None:
    dog = Watchdog(PACE, began=100.0)
    assert dog.overdue(700.0) is None
    assert dog.overdue(701.0) == "no step for 601 s (limit 600 s)"
    dog.take(event("started", step=0), 400.0)  # a sign of life, but no step yet
    assert dog.overdue(1000.0) is None and dog.overdue(1001.0) is not None


@pytest.mark.parametrize(("step_seconds", "limit"), [(0.1, 120.0), (12.0, 120.0), (30.0, 300.0)])
def test_the_limit_is_ten_median_steps_but_two_minutes_at_least(step_seconds: float, limit: float) -> None:
    dog = Watchdog(PACE, began=0.0)
    for step in range(1, 10):
        dog.take(event("step", step=step, seconds=step_seconds), float(step))
    dog.take(event("step", step=10, seconds=500.0), 10.0)  # one slow step moves no median
    assert dog.overdue(10.0 + limit) is None
    assert dog.overdue(10.0 + limit + 1) == f"no step for {limit + 1:.0f} s (limit {limit:.0f} s)"


def test_a_pause_lasts_until_the_next_event() -> None:
    dog = Watchdog(PACE, began=0.0)
    dog.take(event("step", step=1, seconds=1.0), 1.0)
    dog.take(event("pause", step=1, reason="save"), 2.0)
    assert dog.overdue(1802.0) is None and dog.overdue(1803.0) is not None
    dog.take(event("checkpoint", step=1, seconds=30.0), 500.0)
    assert dog.overdue(620.0) is None and dog.overdue(621.0) is not None


def test_a_test_bed_shortens_every_limit_by_one_factor() -> None:
    assert Pace.from_environment({}) == PACE
    quick = Pace.from_environment({"TRAINER_TIME_FACTOR": "0.1"})
    assert (quick.lease_seconds, quick.hang_floor_seconds) == pytest.approx((3.0, 12.0))
    for wrong in ("0", "-1", "soon", "nan", "inf"):
        with pytest.raises(ConfigurationError, match="TRAINER_TIME_FACTOR"):
            Pace.from_environment({"TRAINER_TIME_FACTOR": wrong})


# --- processes

WORKER = """
import faulthandler, os, signal, subprocess, sys, time
faulthandler.register(signal.SIGUSR1, all_threads=True)
loader = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"])
def blocked_loader():
    print(loader.pid, flush=True)  # only now: whoever reads it may stop this process at once
    time.sleep(600)
blocked_loader()
"""


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[tuple[int, int, Path]]:
    """A worker of rank 3 with a loader of its own: (pid, pid of the loader, its log)."""
    log = tmp_path / "worker.log"
    with open(log, "wb") as errors:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", WORKER],
            env={**os.environ, "RANK": "3"},
            stdout=subprocess.PIPE,
            stderr=errors,
        )
    assert process.stdout is not None
    loader = int(process.stdout.readline())
    yield process.pid, loader, log
    for pid in (loader, process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()


def test_a_rank_is_the_worker_and_not_its_loader(worker: tuple[int, int, Path]) -> None:
    pid, loader, _ = worker
    found = rank_processes([os.getpid(), loader, pid])  # this process has no rank, as torchrun has none
    assert [(process.rank, process.pid) for process in found] == [(3, pid)]
    assert found[0].state[0] in "RS"
    assert rank_processes([2**22 + 1]) == []


def test_a_stopped_rank_is_named_and_writes_its_stacks_all_the_same(worker: tuple[int, int, Path]) -> None:
    pid, loader, log = worker
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: rank_processes([pid])[0].state.startswith("T"), "the stop", 60)
    found = rank_processes([pid, loader])
    assert describe(found) == "rank 3 process state T (stopped)"
    ask_for_stacks(found)
    wait_until(lambda: "blocked_loader" in log.read_text(), "the stacks", 60)


def test_the_suspect_is_told_before_those_that_wait_for_it() -> None:
    waits = RankProcess(0, 1, "S (sleeping)", "futex_wait_queue")
    stuck = replace(waits, rank=1, state="D (disk sleep)")
    assert describe([waits, stuck]) == "rank 1 process state D (disk sleep)"
    assert describe([waits]) == "rank 0 process state S (sleeping)"
    assert describe([]) == "no worker process is left"
