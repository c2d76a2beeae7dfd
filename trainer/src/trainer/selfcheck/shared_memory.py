"""Shared memory: large enough for NCCL and data loaders, and free of what a killed NCCL left there."""

from __future__ import annotations

import os
from pathlib import Path

from ..exit_codes import Exit
from .report import Finding, fail, info, passed, warning
from .view import Host

SHARED_MEMORY = "/dev/shm"  # noqa: S108  the kernel's, no temporary folder of ours
LEAST_MIB = 1024  # with a container's 64 MiB NCCL and loaders end in a bus error (nccl 290; pytorch 5040)


def check_shared_memory(processes: int, host: Host, path: str = SHARED_MEMORY) -> Finding:
    """``processes``: workers on this node. One alone exchanges nothing through shared memory."""
    mib = host.total_mib(path)
    if mib is None:
        return info("shared-memory", f"{path} is not there")
    message = f"{path} has {mib:.0f} MiB"
    if mib >= LEAST_MIB:
        return passed("shared-memory", message)
    verdict, code = (warning, None) if processes < 2 else (fail, Exit.CONFIGURATION)
    message = f"{message}, {LEAST_MIB} are wanted for several processes on one node"
    todo = "start the container with --shm-size 8g or --ipc=host"
    return verdict("shared-memory", message, "a container's default of 64 MiB", todo, code, mib=round(mib))


def remove_leftovers(folder: Path = Path(SHARED_MEMORY), processes: Path = Path("/proc")) -> list[str]:
    """Removes this user's NCCL segments that no process of this user has mapped; returns their names (llm-d 352)."""
    mapped = _mapped(processes)
    removed = []
    for path in sorted(folder.glob("nccl-*")):
        try:
            if path.stat().st_uid == os.getuid() and str(path) not in mapped:
                path.unlink()
                removed.append(path.name)
        except OSError:  # gone already, or not ours to remove
            continue
    return removed


def check_leftovers(removed: list[str]) -> list[Finding]:
    if not removed:
        return []
    message = f"{len(removed)} segments of an NCCL that was killed were removed from {SHARED_MEMORY}"
    return [info("shared-memory", message, removed=removed[:20])]


def _mapped(processes: Path) -> set[str]:
    """Files that this user's processes have mapped; those of others cannot be looked at, and need not be."""
    found: set[str] = set()
    for maps in processes.glob("[0-9]*/maps"):
        try:
            lines = maps.read_text(errors="replace").splitlines()
        except OSError:
            continue
        found.update(line.split(maxsplit=5)[5] for line in lines if "/nccl-" in line)
    return found
