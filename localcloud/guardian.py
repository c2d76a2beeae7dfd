"""Ends what `make up` started, if `make up` itself dies before it is done.

`make up` holds the writing end of a pipe and writes one byte into it when the stack stands. The guardian waits at the
reading end: a byte means "done", the end of the pipe without one means that `make up` is gone, also by `kill -9`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from .daemons import end_leavings


class Guard:
    """`make up`'s end of the pipe. Used as a context manager around everything that starts a process."""

    def __init__(self, local: Path, env: dict[str, str]) -> None:
        reading, self._writing = os.pipe()
        argv = [sys.executable, "-m", "localcloud.guardian", str(reading), str(local)]
        self._process = subprocess.Popen(
            argv, pass_fds=[reading], start_new_session=True, env=env, stdin=subprocess.DEVNULL
        )
        os.close(reading)

    def release(self) -> None:
        """The stack stands: let it live on without `make up`."""
        os.write(self._writing, b"1")
        os.close(self._writing)
        self._process.wait()

    def fire(self) -> None:
        """Something failed: have everything ended now, and wait until it is."""
        os.close(self._writing)
        self._process.wait()


def main() -> int:
    reading, local = int(sys.argv[1]), Path(sys.argv[2])
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # Ctrl-C reaches the whole terminal; this process cleans up after it
    if os.read(reading, 1) == b"":
        end_leavings(local)
    return 0


if __name__ == "__main__":
    sys.exit(main())
