"""Processes by identity: a pid alone may belong to somebody else by now; a pid with its start time does not.

Linux only: everything is read from /proc.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    pid: int
    started: int  # clock ticks since the machine's boot

    def alive(self) -> bool:
        """False also for a zombie: it runs no more, whoever has yet to collect it."""
        found = _stat(self.pid)
        return found is not None and found[1] == self.started and found[0] not in "ZX"

    def send(self, number: int) -> bool:
        """Signal this very process; False when it is gone."""
        if not self.alive():
            return False
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:
            return False
        return True


def _stat(pid: int) -> tuple[str, int, int] | None:
    """State letter, start time in ticks, parent's pid."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold spaces and brackets
    return fields[0], int(fields[19]), int(fields[1])


def identify(pid: int) -> Identity | None:
    """The process that has this pid now."""
    found = _stat(pid)
    return None if found is None else Identity(pid, found[1])


def everyone() -> list[int]:
    return [int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()]


def descendants(pid: int) -> list[Identity]:
    """Children, their children and so on; not the process itself."""
    children: dict[int, list[Identity]] = {}
    for other in everyone():
        found = _stat(other)
        if found is not None:
            children.setdefault(found[2], []).append(Identity(other, found[1]))
    result: list[Identity] = []
    queue = [pid]
    while queue:
        for child in children.get(queue.pop(), []):
            result.append(child)
            queue.append(child.pid)
    return result


def ancestors(pid: int) -> set[int]:
    """The process and all its parents."""
    chain: set[int] = set()
    while pid > 0 and pid not in chain:
        chain.add(pid)
        found = _stat(pid)
        pid = found[2] if found else 0
    return chain


def marked(name: str, value: str) -> list[Identity]:
    """Processes that were started with `name=value` in their environment, but for this one and its parents.

    The environment is inherited by every child, so that this finds whole trees, also those whose root died.
    """
    wanted = f"{name}={value}".encode()
    own = ancestors(os.getpid())
    found: list[Identity] = []
    for pid in everyone():
        if pid in own:
            continue
        try:
            environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:  # gone, or another user's
            continue
        identity = identify(pid)
        if wanted in environment and identity is not None and identity.alive():
            found.append(identity)
    return found


def command_line(pid: int) -> str:
    try:
        return (
            (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        )
    except OSError:
        return ""


def end(processes: Iterable[Identity], grace_seconds: float) -> list[Identity]:
    """SIGTERM, wait up to `grace_seconds`, SIGKILL; returns those that had to be killed."""
    open_ones = [process for process in processes if process.send(signal.SIGTERM)]
    deadline = time.monotonic() + grace_seconds
    while open_ones and time.monotonic() < deadline:
        time.sleep(0.05)
        open_ones = [process for process in open_ones if process.alive()]
    for process in open_ones:
        process.send(signal.SIGKILL)
    until = time.monotonic() + 2
    while any(process.alive() for process in open_ones) and time.monotonic() < until:
        time.sleep(0.02)
    return open_ones
