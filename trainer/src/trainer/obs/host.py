"""The node's own memory and disks as metrics, from /proc: pure parsers, and one reader at the moment of a scrape."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from .exporter import LabelValues, NodeState

# Whole disks as the kernel names them: partitions, loop devices and RAIDs would count the same bytes again.
WHOLE_DISK = re.compile(r"nvme\d+n\d+|(?:sd|vd|xvd)[a-z]+")
# The unit of /proc/diskstats, whatever the disk's own (kernel, Documentation/admin-guide/iostats).
SECTOR_BYTES = 512
PROCESSES_SECONDS = 10.0  # how long the list of worker processes is kept: finding them reads all of /proc
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class DiskCounts:
    """Since boot."""

    read_bytes: int
    written_bytes: int
    busy_seconds: float


def parse_diskstats(text: str) -> dict[str, DiskCounts]:
    """Whole disks of /proc/diskstats by name; a line that is shorter than kernel 2.6's is left out."""
    found = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 14 and WHOLE_DISK.fullmatch(words[2]):
            read, written, busy_ms = int(words[5]), int(words[9]), int(words[12])
            found[words[2]] = DiskCounts(read * SECTOR_BYTES, written * SECTOR_BYTES, busy_ms / 1000)
    return found


def parse_meminfo(text: str) -> dict[str, int]:
    """Bytes by the kernel's name, of /proc/meminfo."""
    lines = re.findall(r"^(\w+):\s+(\d+) kB$", text, flags=re.MULTILINE)
    return {name: int(kilobytes) * 1024 for name, kilobytes in lines}


def resident_bytes(pids: Iterable[int], proc: Path = Path("/proc")) -> int | None:
    """Memory of those processes that are still there; None: none is."""
    pages = []
    for pid in pids:
        try:
            pages.append(int((proc / str(pid) / "statm").read_text().split()[1]))
        except (OSError, IndexError):  # gone meanwhile
            continue
    return sum(pages) * PAGE_BYTES if pages else None


@dataclass
class HostMetrics:
    """``worker_pids`` finds the worker processes; it is asked at most once in PROCESSES_SECONDS."""

    state: NodeState
    worker_pids: Callable[[], Iterable[int]]
    proc: Path = Path("/proc")
    _pids: list[int] = field(default_factory=list)
    _next_look: float = 0.0

    def refresh(self) -> None:
        memory = parse_meminfo(self._read("meminfo"))
        self.state.set("trainer_host_memory_available_bytes", memory.get("MemAvailable"))
        self.state.set("trainer_host_memory_total_bytes", memory.get("MemTotal"))
        disks = parse_diskstats(self._read("diskstats"))
        for name, value in (
            ("trainer_disk_read_bytes_total", "read_bytes"),
            ("trainer_disk_written_bytes_total", "written_bytes"),
            ("trainer_disk_busy_seconds_total", "busy_seconds"),
        ):
            series: dict[LabelValues, float] = {
                (disk,): getattr(found, value) for disk, found in disks.items()
            }
            self.state.replace(name, series)
        now = time.monotonic()
        if now >= self._next_look:
            self._pids, self._next_look = list(self.worker_pids()), now + PROCESSES_SECONDS
        self.state.set("trainer_workers_resident_bytes", resident_bytes(self._pids, self.proc))

    def _read(self, name: str) -> str:
        """Empty where there is no such file: what it would say is then absent."""
        try:
            return (self.proc / name).read_text()
        except OSError:
            return ""
