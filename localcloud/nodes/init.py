"""The first process of a node: runs its user data, keeps the console, takes everything along when it ends.

Started by path, with the standard library only. Exit code: that of the user data, which the start hook
replaces by the agent; 128 plus the signal's number if a signal ended it.

    python init.py CONSOLE_LOG GRACE_SECONDS COMMAND [ARGUMENT ...]

SIGTERM shuts the node down as a machine does: SIGTERM to the agent, the grace, then SIGKILL to all. When the
driver dies, in whatever way, the kernel sends SIGINT: everything is killed at once.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timezone
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def become_init() -> None:
    """Orphans of the node come to this process, and it hears of its driver's death."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    parent = os.getppid()
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0)
    if os.getppid() != parent:  # it died before the request
        os._exit(1)


def copy_console(stream: object, log: Path) -> None:
    with log.open("ab", buffering=0) as output:
        for line in stream:  # type: ignore[attr-defined]
            stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
            output.write(f"{stamp} ".encode() + line.rstrip(b"\n") + b"\n")


def children() -> list[int]:
    """Every process whose parent is this one, orphans of the node included."""
    own = os.getpid()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == own:
                found.append(int(entry.name))
    return found


def kill_everything(limit_seconds: float = 5.0) -> None:
    """Kill children until none is left: a killed child's own children become ours and are next."""
    deadline = time.monotonic() + limit_seconds
    while (left := children()) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        reap()
        time.sleep(0.02)


def reap() -> dict[int, int]:
    """Collect what ended; pid -> exit code, 128 plus signal."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        code = os.waitstatus_to_exitcode(status)
        ended[pid] = code if code >= 0 else 128 - code


def main() -> int:
    log, grace_seconds, command = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    become_init()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write)
    asked: set[int] = set()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, lambda received, _: asked.add(received))

    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    console = threading.Thread(target=copy_console, args=(child.stdout, log), daemon=True)
    console.start()

    code: int | None = None
    kill_at = float("inf")
    while code is None:
        code = reap().get(child.pid)
        if code is not None:
            break
        if signal.SIGINT in asked or time.monotonic() >= kill_at:
            kill_everything()
            code = 128 + signal.SIGKILL
            break
        if signal.SIGTERM in asked and kill_at == float("inf"):
            os.kill(child.pid, signal.SIGTERM)
            kill_at = time.monotonic() + grace_seconds
        _wait(wake_read, min(1.0, max(0.0, kill_at - time.monotonic())))
    kill_everything()  # as systemd ends a unit's whole control group
    console.join(timeout=2)
    return code


def _wait(wake: int, seconds: float) -> None:
    if select.select([wake], [], [], seconds)[0]:
        os.read(wake, 4096)


if __name__ == "__main__":
    sys.exit(main())
