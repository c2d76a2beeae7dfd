"""A hang: processes that live and make no step. It is told from slow work by the steps before it."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from ..contracts.worker import WorkerEvent
from .pace import Pace

STEPS = 50  # of which the median is taken
TIMES_MEDIAN = 10.0
SUSPECT = "TtDZX"  # process states in which nothing is computed: stopped, traced, in the kernel, dead


@dataclass
class Watchdog:
    """Fed with one rank's events; ``now`` is this node's monotonic clock. Any event is a sign of life."""

    pace: Pace
    began: float  # when the workers were started
    _last: WorkerEvent | None = None
    _seen_at: float = field(init=False)
    _steps: deque[float] = field(default_factory=lambda: deque(maxlen=STEPS))

    def __post_init__(self) -> None:
        self._seen_at = self.began

    def take(self, event: WorkerEvent, now: float) -> None:
        self._seen_at = now
        pausing = self._last is not None and self._last.kind == "pause" and self._last.reason == "eval"
        if event.kind != "checkpoint" or not pausing:  # one that was saved meanwhile ends no evaluation
            self._last = event
        if event.kind == "step":
            self._steps.append(event.seconds or 0.0)

    @property
    def limit_seconds(self) -> float:
        if self._last is not None and self._last.kind == "pause":
            return self.pace.hang_pause_seconds
        if not self._steps:
            return self.pace.hang_first_step_seconds
        return max(TIMES_MEDIAN * median(self._steps), self.pace.hang_floor_seconds)

    def overdue(self, now: float) -> str | None:
        """What a hang is called; None while there is none."""
        silent, limit = now - self._seen_at, self.limit_seconds
        return f"no step for {silent:.0f} s (limit {limit:.0f} s)" if silent > limit else None


@dataclass(frozen=True)
class RankProcess:
    rank: int
    pid: int
    state: str  # as /proc shows it: "S (sleeping)", "T (stopped)"
    wchan: str  # where in the kernel it waits; empty where that is not told


def rank_processes(pids: Iterable[int], proc: Path = Path("/proc")) -> list[RankProcess]:
    """The workers among ``pids``: those with a RANK whose parent is no worker (loaders inherit the variable)."""
    ranks = {pid: rank for pid in pids if (rank := _rank(proc / str(pid))) is not None}
    found = []
    for pid, rank in ranks.items():
        status = _status(proc / str(pid))
        if status and int(status.get("PPid", "0")) not in ranks:
            found.append(RankProcess(rank, pid, status.get("State", "?"), _wchan(proc / str(pid))))
    return sorted(found, key=lambda process: process.rank)


def describe(processes: Iterable[RankProcess]) -> str:
    """The suspects in words, or all where none is suspect."""
    known = list(processes)
    suspects = [process for process in known if process.state[:1] in SUSPECT] or known
    words = ", ".join(f"rank {process.rank} process state {process.state}" for process in suspects)
    return words or "no worker process is left"


def ask_for_stacks(processes: Iterable[RankProcess]) -> None:
    """SIGUSR1: faulthandler writes all threads' stacks to the worker's log. A stopped process is woken for it."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGUSR1)
            if process.state[:1] == "T":
                os.kill(process.pid, signal.SIGCONT)


def _rank(entry: Path) -> int | None:
    """Of what torchrun started by its environment, of what it forked by its name (`trainer.agent.forked_rank`)."""
    try:
        variables = (entry / "environ").read_bytes().split(b"\0")
        name = (entry / "comm").read_bytes().strip()
    except OSError:
        return None
    value = next((variable[5:] for variable in variables if variable.startswith(b"RANK=")), None)
    if value is None and name.startswith(b"rank-"):
        value = name[5:]
    return int(value) if value is not None and value.isdigit() else None


def _status(entry: Path) -> Mapping[str, str]:
    try:
        lines = (entry / "status").read_text().splitlines()
    except OSError:
        return {}
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def _wchan(entry: Path) -> str:
    try:
        text = (entry / "wchan").read_text().strip()
    except OSError:
        return ""
    return "" if text == "0" else text
