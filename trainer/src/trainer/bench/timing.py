"""Timing work on devices: CUDA events on a GPU, the monotonic clock on a CPU; all devices at the same time."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ..errors import BenchmarkFailed

FLUSH_BYTES = 256 << 20  # more than any L2 cache (Blackwell: 126 MiB)
START_SECONDS = 120.0  # for the others at the common start

T = TypeVar("T")
Start = Callable[[], object]


class Clock:
    def __init__(self, device: str) -> None:
        import torch

        self._torch: Any = torch
        self._device = device
        self._cuda = device != "cpu"
        self._waste: Any = None

    def flush(self) -> None:
        """Put something else into the L2 cache; on a CPU the operands are larger than its caches or it is told."""
        if self._cuda and self._waste is None:
            self._waste = self._torch.empty(FLUSH_BYTES, dtype=self._torch.uint8, device=self._device)
        if self._waste is not None:
            self._waste.zero_()

    def time(self, work: Callable[[], object]) -> float:
        """Seconds of the device's own time."""
        if not self._cuda:
            began = time.perf_counter()
            work()
            return time.perf_counter() - began
        cuda = self._torch.cuda
        with cuda.device(self._device):
            began, ended = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            began.record()
            work()
            ended.record()
            ended.synchronize()
            return began.elapsed_time(ended) / 1000


def spread_ratio(seconds: Sequence[float]) -> float:
    """Of the rates: (fastest - slowest) / median."""
    return statistics.median(seconds) * (1 / min(seconds) - 1 / max(seconds))


def on_all(devices: Sequence[str], job: Callable[[str, Start], T]) -> list[T]:
    """``job(device, start)`` in a thread a device; ``start()`` returns when all of them have called it.

    Raises BenchmarkFailed with the first device that failed by itself, not one that waited for it in vain.
    """
    barrier = threading.Barrier(len(devices))

    def run(device: str) -> T:
        try:
            return job(device, lambda: barrier.wait(START_SECONDS))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(devices)) as pool:
        runs = [pool.submit(run, device) for device in devices]
        faults = [
            (device, fault) for device, run_ in zip(devices, runs, strict=True) if (fault := run_.exception())
        ]
    for device, fault in sorted(faults, key=lambda told: isinstance(told[1], threading.BrokenBarrierError)):
        why = " ".join(str(fault).split())[:300] or type(fault).__name__
        raise BenchmarkFailed(f"{device}: {why}") from fault
    return [run_.result() for run_ in runs]
