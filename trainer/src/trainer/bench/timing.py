"""Timing a piece of work on a device: CUDA events on a GPU, the monotonic clock on a CPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

FLUSH_BYTES = 256 << 20  # more than any L2 cache (Blackwell: 126 MiB)


class Clock:
    def __init__(self, device: str) -> None:
        import torch

        self._torch: Any = torch
        self._device = device
        self._cuda = device != "cpu"
        self._waste = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device) if self._cuda else None

    def flush(self) -> None:
        """Put something else into the L2 cache; on a CPU the operands are larger than its caches or it is told."""
        if self._waste is not None:
            self._waste.zero_()

    def time(self, work: Callable[[], object]) -> float:
        """Seconds of the device's own time."""
        if not self._cuda:
            began = time.perf_counter()
            work()
            return time.perf_counter() - began
        torch = self._torch
        with torch.cuda.device(self._device):
            began, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            began.record()
            work()
            ended.record()
            ended.synchronize()
            return began.elapsed_time(ended) / 1000
