"""The all-reduce benchmark: a process a device, or two over gloo on a CPU; under torchrun across nodes.

The result is checked exactly, on every rank. What NCCL chose as its network is read from its log.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import Fault
from ..exit_codes import Exit
from .allreduce_rank import RankOptions, run_rank
from .nccl import LOG_ENVIRONMENT, NcclChoice, parse_nccl_log
from .network import bus_bandwidth

MIB, GIB = 1 << 20, 1 << 30
SIZES_CPU = (1 * MIB, 16 * MIB, 64 * MIB)
SIZES_CUDA = (128 * MIB, 1 * GIB, 4 * GIB)
CPU_RANKS = 2
COPIES = 8
LIMIT_SECONDS = 300.0


class AllReduceFailed(Fault):
    """One line: what the rank that failed said last."""

    exit_code = Exit.DRIVER


@dataclass(frozen=True)
class SizeMeasured:
    size_bytes: int
    seconds: tuple[float, ...]
    exact: bool
    ranks: int

    @property
    def bus_gigabytes_per_second(self) -> float:
        return bus_bandwidth(self.size_bytes, statistics.median(self.seconds), self.ranks)

    @property
    def spread_ratio(self) -> float:
        return (max(self.seconds) - min(self.seconds)) / statistics.median(self.seconds)


@dataclass(frozen=True)
class AllReduceMeasured:
    backend: str
    ranks: int
    nodes: int
    sizes: tuple[SizeMeasured, ...]
    nccl: NcclChoice | None = None  # None: gloo, or its log went elsewhere


def default_sizes(device: str) -> tuple[int, ...]:
    """Those that the device has room for, with the copies that the check of the result needs."""
    if device == "cpu":
        return SIZES_CPU
    import torch

    room = torch.cuda.get_device_properties(device).total_memory
    return tuple(size for size in SIZES_CUDA if COPIES * size <= room)


def measure_allreduce(
    devices: Sequence[str], sizes: Sequence[int], budget_seconds: float
) -> AllReduceMeasured:
    """On this machine. ``devices`` of torch; one CPU means two processes on it. Raises AllReduceFailed."""
    cpu = devices[0] == "cpu"
    places = ["cpu"] * CPU_RANKS if cpu else list(devices)
    backend = "gloo" if cpu else "nccl"
    with tempfile.TemporaryDirectory(prefix="allreduce-") as folder:
        meeting = f"file://{folder}/meeting"
        options = [
            RankOptions(backend, place, rank, len(places), meeting, tuple(sizes), budget_seconds)
            for rank, place in enumerate(places)
        ]
        output, log = _run(options, Path(folder), _environment(os.environ, cpu))
    return _measured(
        json.loads(output), backend, len(places), 1, None if cpu else parse_nccl_log(log.splitlines())
    )


def under_torchrun(environment: Mapping[str, str]) -> bool:
    return "RANK" in environment and "MASTER_ADDR" in environment


def measure_as_rank(
    device: str, sizes: Sequence[int], budget_seconds: float, environment: Mapping[str, str]
) -> AllReduceMeasured:
    """As one rank of torchrun's, on one node or several. All ranks return the same."""
    world, local = int(environment["WORLD_SIZE"]), int(environment.get("LOCAL_WORLD_SIZE", "1"))
    backend = "gloo" if device == "cpu" else "nccl"
    rank = int(environment["RANK"])
    options = RankOptions(backend, device, rank, world, "env://", tuple(sizes), budget_seconds)
    log = environment.get("NCCL_DEBUG_FILE")  # where the caller sent NCCL's log, if anywhere
    found = run_rank(options)
    lines = Path(log).read_text(errors="replace").splitlines() if log and Path(log).is_file() else None
    return _measured(found, backend, world, max(1, world // local), parse_nccl_log(lines) if lines else None)


def _measured(
    found: Sequence[Mapping[str, object]], backend: str, ranks: int, nodes: int, nccl: NcclChoice | None
) -> AllReduceMeasured:
    sizes = tuple(
        SizeMeasured(int(str(f["bytes"])), tuple(f["seconds"]), bool(f["exact"]), ranks)  # type: ignore[arg-type]
        for f in found
    )
    return AllReduceMeasured(backend, ranks, nodes, sizes, nccl)


def _environment(base: Mapping[str, str], cpu: bool) -> dict[str, str]:
    environment = dict(base)
    if cpu:
        environment.update(OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME=base.get("GLOO_SOCKET_IFNAME", "lo"))
    else:
        environment.update(LOG_ENVIRONMENT)
        environment.pop("NCCL_DEBUG_FILE", None)
    return environment


def _run(options: Sequence[RankOptions], folder: Path, environment: Mapping[str, str]) -> tuple[str, str]:
    """Rank 0's output and log. All ranks are ended whatever happens."""
    processes: list[subprocess.Popen[str]] = []
    logs = [folder / f"rank{option.rank}.log" for option in options]
    try:
        for option, path in zip(options, logs, strict=True):
            with path.open("wb") as log:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "trainer.bench.allreduce_rank", option.to_argument()],
                        env=dict(environment),
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.PIPE if option.rank == 0 else log,
                        stderr=log,
                        text=True,
                    )
                )
        try:
            output, _ = processes[0].communicate(timeout=LIMIT_SECONDS)
            for process in processes[1:]:
                process.wait(timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise AllReduceFailed(f"the ranks took longer than {LIMIT_SECONDS:.0f} s") from None
        said = [path.read_text(errors="replace") for path in logs]
        for rank, process in enumerate(processes):
            if process.returncode:
                last = (said[rank].strip().splitlines() or ["it said nothing"])[-1]
                raise AllReduceFailed(f"rank {rank} ended with {process.returncode}: {last}")
        # NCCL logs to standard output unless told otherwise: of rank 0 that is before its JSON line.
        *more, result = output.strip().splitlines()
        return result, "\n".join([*more, said[0]])
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
