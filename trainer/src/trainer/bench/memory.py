"""Memory bandwidth: a copy of more than the caches hold, read and write counted, its bytes compared afterwards."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from .timing import Clock

LEAST_BYTES_CUDA, LEAST_BYTES_CPU = 512 << 20, 64 << 20
MOST_BYTES_CPU = (
    256 << 20
)  # a server's last-level cache is shared by far more cores than a small instance has
CACHES = 4  # times the largest cache: less would be the cache's speed
LEAST_REPEATS = 5
TIMEOUT_SECONDS = 60.0
CPU_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")


@dataclass(frozen=True)
class MemoryMeasured:
    """``copied_bytes`` in each run; read and written: twice as much moves."""

    device: str
    copied_bytes: int
    seconds: tuple[float, ...]
    exact: bool

    def gigabytes_per_second(self, seconds: float) -> float:
        return 2 * self.copied_bytes / seconds / 1e9

    @property
    def median(self) -> float:
        return self.gigabytes_per_second(statistics.median(self.seconds))

    @property
    def spread_ratio(self) -> float:
        fastest, slowest = (self.gigabytes_per_second(f(self.seconds)) for f in (min, max))
        return (fastest - slowest) / self.median


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
    """All devices at once, at most about ``budget_seconds`` beside the filling of the buffers."""
    start = threading.Barrier(len(devices))
    with ThreadPoolExecutor(len(devices)) as pool:
        jobs = [pool.submit(_on_device, device, budget_seconds, copied_bytes, start) for device in devices]
        return [job.result() for job in jobs]


def _on_device(
    device: str, budget: float, copied_bytes: int | None, start: threading.Barrier
) -> MemoryMeasured:
    import torch

    try:
        size = copied_bytes or copy_bytes(device)
        clock = Clock(device)
        source = torch.empty(size // 4, dtype=torch.int32, device=device).random_()
        target = torch.zeros_like(source)
        clock.time(lambda: target.copy_(source))  # pages are there now
    except BaseException:
        start.abort()
        raise
    start.wait(TIMEOUT_SECONDS)
    times: list[float] = []
    began = time.monotonic()
    while len(times) < LEAST_REPEATS or time.monotonic() - began < budget:
        times.append(clock.time(lambda: target.copy_(source)))
    target.zero_()
    target.copy_(source)
    return MemoryMeasured(device, source.numel() * 4, tuple(times), bool(torch.equal(source, target)))
