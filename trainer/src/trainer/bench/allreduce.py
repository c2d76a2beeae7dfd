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
import time
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import DriverError
from .allreduce_rank import RankOptions, run_rank
from .nccl import LOG_ENVIRONMENT, NcclChoice, parse_nccl_log
from .network import bus_bandwidth

MIB, GIB = 1 << 20, 1 << 30
SIZES_CPU = (1 * MIB, 16 * MIB, 64 * MIB)
SIZES_CUDA = (128 * MIB, 1 * GIB, 4 * GIB)
CPU_RANKS = 2
COPIES = 8
LIMIT_SECONDS, POLL_SECONDS = 300.0, 0.05


@dataclass(frozen=True)
class SizeMeasured:
    size_bytes: int
    seconds: tuple[float, ...]
    exact: bool
    ranks: int

    @property
    def bus_gigabytes_per_second(self) -> float:
        return bus_bandwidth(self.size_bytes, statistics.median(self.seconds), self.ranks)


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
    """On this machine. ``devices`` of torch; one CPU means two processes on it. Raises DriverError."""
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
    device: str, sizes: Sequence[int], budget_seconds: float, environment: MutableMapping[str, str]
) -> AllReduceMeasured:
    """As one rank of torchrun's, on one node or several. All ranks return the same.

    ``environment`` is this process's: NCCL is told to write down what it chooses, to where the caller said if anywhere.
    """
    rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    local = int(environment.get("LOCAL_WORLD_SIZE", "1"))
    backend = "gloo" if device == "cpu" else "nccl"
    options = RankOptions(backend, device, rank, world, "env://", tuple(sizes), budget_seconds)
    nccl = None
    with tempfile.TemporaryDirectory(prefix="allreduce-") as folder:
        log = Path(environment.get("NCCL_DEBUG_FILE") or f"{folder}/nccl.log")
        if backend == "nccl":
            environment.update(LOG_ENVIRONMENT, NCCL_DEBUG_FILE=str(log))
        found = run_rank(options)
        if log.is_file():
            nccl = parse_nccl_log(log.read_text(errors="replace").splitlines())
    return _measured(found, backend, world, max(1, world // local), nccl)


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
    """Rank 0's result and its log. The first rank that fails ends all; all are ended whatever happens."""
    processes: list[subprocess.Popen[bytes]] = []
    outputs, logs = ([folder / f"rank{o.rank}.{kind}" for o in options] for kind in ("out", "log"))
    try:
        for option, output, log in zip(options, outputs, logs, strict=True):
            command = [sys.executable, "-m", "trainer.bench.allreduce_rank", option.to_argument()]
            with output.open("wb") as out, log.open("wb") as err:
                processes.append(
                    subprocess.Popen(
                        command, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
                    )
                )
        give_up_at = time.monotonic() + LIMIT_SECONDS
        while None in (codes := [process.poll() for process in processes]) and not any(codes):
            if time.monotonic() > give_up_at:
                raise DriverError(f"the ranks took longer than {LIMIT_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        for rank, process in enumerate(processes):
            if process.returncode:
                last = (logs[rank].read_text(errors="replace").strip().splitlines() or ["it said nothing"])[
                    -1
                ]
                raise DriverError(f"rank {rank} ended with {process.returncode}: {last}")
        # NCCL logs to standard output unless told otherwise: of rank 0 that is before its JSON line.
        *more, result = outputs[0].read_text(errors="replace").strip().splitlines()
        return result, "\n".join([*more, logs[0].read_text(errors="replace")])
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
