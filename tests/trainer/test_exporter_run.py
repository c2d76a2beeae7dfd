"""What a node exports of its run and of itself: rates of the last steps, the run's cost, memory and disks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from trainer.agent.cost import all_usage, run_cost, show_cost
from trainer.agent.events import LAST_STEP, RATES, RECENT_STEPS, Meter
from trainer.contracts.cost import NodeUsage, RunUsage
from trainer.contracts.worker import WorkerEvent
from trainer.obs.exporter import NodeState
from trainer.obs.host import HostMetrics, parse_diskstats, parse_meminfo, resident_bytes

DISKSTATS = """\
   7       0 loop0 1089 0 32502 283 267 15 420720 91 0 260 418 0 0 0 0 54 44
 259       0 nvme0n1 100 5 2000 30 200 6 4096 70 0 1500 100 0 0 0 0 0 0
 259       1 nvme0n1p1 90 5 1900 30 200 6 4096 70 0 1400 100
 259       2 nvme1n1 1 0 8 1 0 0 0 0 0 2 1
   9       0 md0 500 0 9000 0 0 0 0 0 0 0 0
 202      80 xvdf 1 0 16 1
"""


def started(step: int = 0, **fields: Any) -> WorkerEvent:
    return WorkerEvent(kind="started", time=1, step=step, total_steps=1000, **fields)


def step(number: int, seconds: float = 0.5, waited: float | None = 0.1, **fields: Any) -> WorkerEvent:
    return WorkerEvent(
        kind="step",
        time=number,
        step=number,
        loss=1.0,
        samples=64 * number,
        seconds=seconds,
        data_wait_seconds=waited,
        **fields,
    )


def meter(*events: WorkerEvent) -> tuple[Meter, NodeState]:
    state = NodeState()
    made = Meter(state)
    for event in events:
        made.take(event)
    return made, state


def test_rates_speak_of_the_last_steps() -> None:
    slow = [step(number, seconds=4.0, waited=4.0) for number in range(1, 4)]
    fast = [step(number) for number in range(4, 4 + RECENT_STEPS)]
    _, state = meter(started(samples=0), *slow)
    assert state.get("trainer_samples_per_second") == 16 and state.get("trainer_data_wait_ratio") == 1
    _, state = meter(started(samples=0), *slow, *fast)
    assert state.get("trainer_samples_per_second") == pytest.approx(128)
    assert state.get("trainer_data_wait_ratio") == pytest.approx(0.2)


def test_what_a_step_does_not_tell_is_absent() -> None:
    _, state = meter(started(samples=0), step(1, waited=None))
    assert state.get("trainer_data_wait_ratio") is None
    assert all(state.get(name) is None for name in LAST_STEP)
    assert state.get("trainer_tokens_per_second") is None and state.get("trainer_tokens_total") is None


def test_tokens_and_the_rest_are_told_where_there_are_any() -> None:
    _, state = meter(
        started(samples=0, tokens=0),
        step(1, tokens=1000, grad_norm=2.5, mfu=0.31, device_peak_bytes=1 << 30, learning_rate=0.1),
        step(2, tokens=2000, grad_norm=1.5, mfu=0.41, device_peak_bytes=1 << 31, learning_rate=0.2),
    )
    assert state.get("trainer_tokens_per_second") == 2000 and state.get("trainer_tokens_total") == 2000
    assert state.get("trainer_grad_norm") == 1.5 and state.get("trainer_mfu_ratio") == 0.41
    assert state.get("trainer_device_memory_peak_bytes") == 1 << 31
    assert state.get("trainer_learning_rate") == 0.2


def test_a_step_without_a_number_takes_the_last_ones_away() -> None:
    bad = WorkerEvent(kind="step", time=3, step=2, loss=None, non_finite=True)
    _, state = meter(started(samples=0), step(1, grad_norm=2.0), bad)
    assert state.get("trainer_grad_norm") is None and state.get("trainer_loss_finite") == 0


def test_rates_end_with_the_workers_and_begin_anew_with_the_next_ones() -> None:
    made, state = meter(started(samples=0), step(1, seconds=8.0, grad_norm=1.0))
    made.ended()
    assert all(state.get(name) is None for name in (*LAST_STEP, *RATES))
    assert state.get("trainer_loss") == 1.0 and state.get("trainer_samples_total") == 64  # of the run
    made.take(started(step=1, samples=64))
    made.take(step(2, seconds=1.0))
    assert state.get("trainer_samples_per_second") == 64


def usage(hours: float, low: float | None, high: float | None, kind: str = "p5.48xlarge") -> NodeUsage:
    as_of = "2026-07-20" if low is not None else None
    return NodeUsage(
        instance_type=kind,
        life_cycle="spot",
        seconds=3600 * hours,
        usd_per_hour_low=low,
        usd_per_hour_high=high,
        prices_as_of=as_of,
    )


def test_the_cost_so_far_is_that_of_all_nodes_of_the_run() -> None:
    state = NodeState()
    used = all_usage({}, RunUsage(nodes={"i-1": usage(2, 10, 12), "i-2": usage(1, 10, 12)}))
    show_cost(run_cost(used), state)
    bounds = [state.get("trainer_run_cost_usd", bound=bound) for bound in ("low", "high")]
    assert bounds == [30, 36]


UNPRICED = usage(1, None, None, "x")


@pytest.mark.parametrize("nodes", [{}, {"i-1": UNPRICED}, {"i-1": usage(2, 10, 12), "i-2": UNPRICED}])
def test_a_cost_that_is_not_known_in_full_is_absent(nodes: dict[str, NodeUsage]) -> None:
    state = NodeState()
    state.set("trainer_run_cost_usd", 5, bound="low")
    show_cost(run_cost(nodes), state)
    assert "trainer_run_cost_usd" not in state.values() or not state.values()["trainer_run_cost_usd"]


def test_disks_are_counted_whole_and_once() -> None:
    disks = parse_diskstats(DISKSTATS)
    assert set(disks) == {
        "nvme0n1",
        "nvme1n1",
    }  # no partition, no loop device, no RAID over them, no short line
    assert disks["nvme0n1"].read_bytes == 2000 * 512 and disks["nvme0n1"].written_bytes == 4096 * 512
    assert disks["nvme0n1"].busy_seconds == 1.5


def test_memory_is_in_bytes() -> None:
    found = parse_meminfo("MemTotal:       2048 kB\nMemAvailable:   1024 kB\nHugePages_Total:       0\n")
    assert found == {"MemTotal": 2 << 20, "MemAvailable": 1 << 20}


def test_a_node_tells_its_memory_its_disks_and_its_workers(tmp_path: Path) -> None:
    (tmp_path / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 1024 kB\n")
    (tmp_path / "diskstats").write_text(DISKSTATS)
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("900 25 3 4 5 6 7\n")
    state, workers = NodeState(), [7, 8]  # 8 is gone
    HostMetrics(state, lambda: workers, tmp_path).refresh()
    assert state.get("trainer_host_memory_available_bytes") == 1 << 20
    assert state.get("trainer_disk_read_bytes_total", disk="nvme1n1") == 8 * 512
    assert state.get("trainer_workers_resident_bytes") == 25 * os.sysconf("SC_PAGE_SIZE")


def test_without_proc_and_without_workers_nothing_is_told(tmp_path: Path) -> None:
    state = NodeState()
    HostMetrics(state, list, tmp_path).refresh()
    assert not any(state.values().values())


def test_worker_processes_are_not_looked_for_at_every_scrape() -> None:
    asked: list[int] = []
    host = HostMetrics(NodeState(), lambda: asked.append(1) or [os.getpid()])
    for _ in range(3):
        host.refresh()
    assert asked == [1] and (host.state.get("trainer_workers_resident_bytes") or 0) > 1 << 20


def test_resident_memory_is_the_processs_own() -> None:
    code = "import sys; held = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=-1, stdout=-1) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert 64 << 20 < (resident_bytes([child.pid]) or 0) < 200 << 20
        child.kill()
    assert resident_bytes([child.pid]) is None
