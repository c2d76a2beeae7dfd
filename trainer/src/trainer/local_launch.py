"""Several processes of one command on this machine, as torchrun starts them, but with their own exit codes and no
stack traces: torchrun answers 1 to everything, and to Ctrl-C with a trace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from types import FrameType

from .exit_codes import Exit

LOOK_SECONDS = 0.2
# Once one process has failed, the others notice by themselves or never will.
GRACE_SECONDS = 30
MEETING_FILE = "TRAINER_MEETING_FILE"  # as in train/world.py, which imports torch
_STOPPED = (Exit.STOPPED_SAVED, Exit.STOPPED_STALE)
_PASSED_ON = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def meeting_file() -> Iterator[str]:
    """Where the ranks of one start meet; gone with it."""
    with TemporaryDirectory(prefix="trainer-") as folder:
        yield os.path.join(folder, "meeting")


def rank_environment(rank: int, size: int, file: str) -> dict[str, str]:
    """What a process needs to know to be one rank of a world on this machine."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    return {**{name: str(value) for name, value in ranks.items()}, MEETING_FILE: file}


def launch(
    command: Sequence[str],
    processes: int,
    environment: Mapping[str, str],
    file: str,
    locks: Sequence[int] = (),
) -> int:
    """Run ``command`` as so many ranks that meet in ``file``; the exit code of the one that failed first for a reason
    of its own. Each of them holds ``locks`` too, as long as it lives. SIGINT and SIGTERM are passed on.
    """
    threads = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes))}
    children: list[subprocess.Popen[bytes]] = []
    asked: list[int] = []

    def pass_on(number: int, _frame: FrameType | None = None) -> None:
        asked.append(number)
        for child in children:
            if child.poll() is None:
                child.send_signal(number)

    try:
        # First: a signal that ended this process alone would leave the others behind.
        for number in _PASSED_ON:
            signal.signal(number, pass_on)
        for rank in range(processes):
            children.append(
                subprocess.Popen(
                    [sys.executable, *command],
                    env={**threads, **environment, **rank_environment(rank, processes, file)},
                    pass_fds=locks,
                )
            )
        for number in [*asked]:  # while not all were there
            pass_on(number)
        deadline: float | None = None
        while any(child.poll() is None for child in children):
            failed = [child for child in children if child.poll() not in (None, 0, *_STOPPED)]
            if failed and deadline is None:
                deadline = time.monotonic() + GRACE_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                pass_on(signal.SIGKILL)
            time.sleep(LOOK_SECONDS)
    finally:
        pass_on(signal.SIGKILL)  # of those that are left where one could not be started
        for child in children:
            child.wait()
    codes = [child.returncode for child in children]
    own = [code for code in codes if code not in (0, Exit.PEER_LOST) and code > 0]
    return own[0] if own else next((abs(code) for code in codes if code), 0)
