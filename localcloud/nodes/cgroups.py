"""A control group for each machine node: its systemd must find its own services' processes there and no others.

Groups are the one thing of a node that the kernel keeps when all its processes are gone; they are empty then, and
removed by whoever ends the stack.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from ..processes import Identity, identify

ROOT = Path("/sys/fs/cgroup")
# Of the older kind there is one hierarchy for each controller: systemd's own (two where it mixes both kinds), and
# memory to be able to tell its use.
OLDER = ("systemd", "unified", "memory")


def hierarchies() -> list[Path]:
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return [ROOT / name for name in OLDER if (ROOT / name / "cgroup.procs").exists()]


def name_of(local: Path) -> str:
    """Of the stack's groups, which hold the nodes' groups."""
    return f"gpu-training-{hashlib.sha256(str(local.resolve()).encode()).hexdigest()[:12]}"


def joiner(local: Path, instance_id: str) -> Callable[[], None]:
    """Make the node's groups; the function moves the process that calls it into them."""
    files = []
    for hierarchy in hierarchies():
        folder = hierarchy / name_of(local) / instance_id
        folder.mkdir(parents=True, exist_ok=True)
        files.append(folder / "cgroup.procs")

    def join() -> None:
        for file in files:
            file.write_text(str(os.getpid()))

    return join


def processes(local: Path, instance_id: str = "") -> list[Identity]:
    """Everything that runs in a node's groups, or in all of the stack: also a machine whose nspawn was killed."""
    pids: set[int] = set()
    for hierarchy in hierarchies():
        for folder, _, _ in os.walk(hierarchy / name_of(local) / instance_id):
            with contextlib.suppress(OSError):  # gone meanwhile
                pids |= {int(line) for line in (Path(folder) / "cgroup.procs").read_text().split()}
    return [found for pid in sorted(pids - {0}) if (found := identify(pid)) is not None and found.alive()]


def remove(local: Path, instance_id: str = "", patience_seconds: float = 0.0) -> None:
    """A node's groups, or all of the stack; one that still has processes after that time stays."""
    deadline = time.monotonic() + patience_seconds
    while True:
        _remove(local, instance_id)
        if not patience_seconds or not left(local) or time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _remove(local: Path, instance_id: str) -> None:
    for hierarchy in hierarchies():
        top = hierarchy / name_of(local) / instance_id
        for folder, _, _ in os.walk(top, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


def left(local: Path) -> list[str]:
    return [str(h / name_of(local)) for h in hierarchies() if (h / name_of(local)).exists()]


def memory_bytes(local: Path, instance_id: str) -> int | None:
    """Resident memory of all of the node's processes, without the page cache; None where it is not counted."""
    for path, key in (
        (ROOT / "memory" / name_of(local) / instance_id / "memory.stat", "total_rss"),
        (ROOT / name_of(local) / instance_id / "memory.stat", "anon"),
    ):
        with contextlib.suppress(OSError):
            for line in path.read_text().splitlines():
                name, _, value = line.partition(" ")
                if name == key:
                    return int(value)
    return None
