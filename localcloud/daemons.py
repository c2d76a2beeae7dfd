"""The local cloud's background processes: started detached, found again, stopped by identity.

Each has a file `.local/daemons/<name>.json` with pid, start time and command, and a log `.local/log/<name>.log`.
Everything that they start inherits one variable of the environment with the path of `.local`, by which a
later command finds what a killed one left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .nodes import cgroups
from .processes import Identity, command_line, end, identify, marked

MARKER = "GPU_TRAINING_LOCAL"  # environment variable: absolute path of the .local folder
STOP_ORDER = ("nodes", "prometheus", "alertmanager", "aws")  # nodes first: they still talk to the cloud
GRACE_SECONDS = 20.0
POLL_SECONDS = 0.1


class DaemonFailed(Exception):
    """A background process did not come up; the text names it, its last line and its log."""


@dataclass(frozen=True)
class Daemon:
    name: str
    pid: int
    started: int  # clock ticks since the machine's boot
    command: list[str]
    log: str

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.started)


def start(
    local: Path,
    name: str,
    command: Sequence[str],
    ready: Callable[[], bool],
    limit_seconds: float,
    env: Mapping[str, str] | None = None,
) -> Daemon:
    """Start a daemon, or return the one that runs already; come back when `ready()` holds.

    Raises DaemonFailed when it ends or is not ready within the limit; it is stopped then.
    """
    existing = running(local, name)
    if existing is None:
        existing = _spawn(local, name, command, env)
    deadline = time.monotonic() + limit_seconds
    while not ready():
        if not existing.identity.alive():
            forget(local, name)
            raise DaemonFailed(
                f"{name} ended at its start: {last_line(Path(existing.log))} (log: {existing.log})"
            )
        if time.monotonic() > deadline:
            stop(local, name)
            raise DaemonFailed(
                f"{name} was not ready within {limit_seconds:.0f} s: {last_line(Path(existing.log))} "
                f"(log: {existing.log})"
            )
        time.sleep(POLL_SECONDS)
    return existing


def _spawn(local: Path, name: str, command: Sequence[str], env: Mapping[str, str] | None) -> Daemon:
    log = local / "log" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        process = subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**(os.environ if env is None else env), MARKER: str(local.resolve())},
        )
    identity = identify(process.pid)
    daemon = Daemon(name, process.pid, identity.started if identity else 0, list(command), str(log))
    path = _file(local, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(daemon), indent=2) + "\n")
    _children.append(process)
    return daemon


# Kept, so that a daemon which ends while its starter lives is collected and not shown as a zombie.
_children: list[subprocess.Popen[bytes]] = []


def running(local: Path, name: str) -> Daemon | None:
    """The daemon of that name, if it lives; a stale file is not taken for one."""
    try:
        daemon = Daemon(**json.loads(_file(local, name).read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return daemon if daemon.identity.alive() else None


def stop(local: Path, name: str, grace_seconds: float = GRACE_SECONDS) -> bool:
    """Stop by SIGTERM, after the grace by SIGKILL; False when it was not running."""
    daemon = running(local, name)
    if daemon is not None:
        end([daemon.identity], grace_seconds)
        for child in _children:
            child.poll()
    forget(local, name)
    return daemon is not None


def forget(local: Path, name: str) -> None:
    _file(local, name).unlink(missing_ok=True)


def find_leavings(local: Path) -> list[Identity]:
    """Every process that belongs to this `.local`, whoever started it and whether or not its starter lives."""
    found = marked(MARKER, str(local.resolve()))
    return found + [process for process in cgroups.processes(local) if process not in found]


def end_leavings(local: Path, grace_seconds: float = GRACE_SECONDS) -> list[str]:
    """Stop the daemons in order, then whatever is left of them; returns a line for each process that had to be
    looked for, which is empty after an orderly end."""
    for name in STOP_ORDER:
        stop(local, name, grace_seconds)
    left = find_leavings(local)
    lines = [f"{process.pid} {command_line(process.pid)[:120]}" for process in left]
    end(left, min(5.0, grace_seconds))
    cgroups.remove(local, patience_seconds=5.0)  # killed processes are gone a moment later
    return lines


def last_line(log: Path) -> str:
    try:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        lines = []
    return lines[-1] if lines else "no output"


def _file(local: Path, name: str) -> Path:
    return local / "daemons" / f"{name}.json"
