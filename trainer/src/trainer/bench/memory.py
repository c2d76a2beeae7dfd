"""Memory bandwidth: a copy of more than the caches hold, read and write counted, its bytes compared afterwards."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .timing import Clock, Start, on_all

LEAST_BYTES_CUDA, LEAST_BYTES_CPU = 512 << 20, 64 << 20
# A server's last-level cache is shared by far more cores than a small instance has.
MOST_BYTES_CPU = 256 << 20
CACHES = 4  # times the largest cache: less would be the cache's speed
LEAST_REPEATS = 5
CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class MemoryMeasured:
    """``copied_bytes`` in each run; read and written: twice as much moves."""

    device: str
    copied_bytes: int
    seconds: tuple[float, ...]
    exact: bool

    @property
    def gigabytes_per_second(self) -> float:
        return 2 * self.copied_bytes / statistics.median(self.seconds) / 1e9


def copy_bytes(device: str) -> int:
    if device == "cpu":
        return min(max(LEAST_BYTES_CPU, CACHES * cpu_cache_bytes()), MOST_BYTES_CPU)
    import torch

    cache = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))
    return max(LEAST_BYTES_CUDA, CACHES * cache)


def cpu_cache_bytes(folder: Path = CPU_CACHES) -> int:
    """Of the largest cache; 0 where the system does not tell."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    sizes = [path.read_text().strip() for path in folder.glob("index*/size")]
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=0)


def measure_memory(
    devices: Sequence[str], budget_seconds: float, copied_bytes: int | None = None
) -> list[MemoryMeasured]:
    """All devices at once, about ``budget_seconds`` beside the filling of the buffers. Raises BenchmarkFailed."""
    return on_all(devices, partial(_on_device, budget=budget_seconds, copied_bytes=copied_bytes))


def _on_device(device: str, start: Start, budget: float, copied_bytes: int | None) -> MemoryMeasured:
    import torch

    size = copied_bytes or copy_bytes(device)
    clock = Clock(device)
    source = torch.empty(size // 4, dtype=torch.int32, device=device).random_()
    target = torch.zeros_like(source)
    clock.time(lambda: target.copy_(source))  # pages are there now
    start()
    times: list[float] = []
    began = time.monotonic()
    while len(times) < LEAST_REPEATS or time.monotonic() - began < budget:
        times.append(clock.time(lambda: target.copy_(source)))
    target.zero_()
    target.copy_(source)
    return MemoryMeasured(device, source.numel() * 4, tuple(times), bool(torch.equal(source, target)))
