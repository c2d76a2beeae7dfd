"""A torchrun that waits: a process that has torch imported, so that the next generation need not wait for that.

The agent starts one while a generation trains, and gives it the next one. It holds no secret before that, never
touches a device, costs about 300 MB of memory of its own, and ends with the agent: the end of its input is its end.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
STANDBY = (sys.executable, "-m", "trainer.agent.standby")
READY = b"ready\n"


@dataclass
class Standby:
    """The agent's end: ``prepare`` while there is time, ``take`` when there is none, ``close`` at last."""

    argv: Sequence[str]  # what to start; empty: there is never one
    environment: Mapping[str, str]
    _process: subprocess.Popen[bytes] | None = None
    _ready: bool = False

    def prepare(self) -> None:
        """Start one, unless there was one since the last ``take``: one that died is not tried again and again."""
        if self._process is None and self.argv:
            self._ready = False
            self._process = subprocess.Popen(
                self.argv,
                env=self.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    @property
    def ready(self) -> bool:
        """It lives and has imported everything."""
        process = self._process
        if process is None or process.stdout is None or process.poll() is not None:
            return False
        if not self._ready:
            os.set_blocking(process.stdout.fileno(), False)
            with contextlib.suppress(BlockingIOError):
                self._ready = os.read(process.stdout.fileno(), len(READY)) == READY
        return self._ready

    def take(
        self, command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> subprocess.Popen[bytes] | None:
        """The process, which now goes on as ``command``, one of torchrun's; None where none is ready."""
        process, ready = self._process, self.ready
        if process is None or process.stdin is None or process.stdout is None:
            return None
        order = json.dumps({"command": [*command], "environment": {**environment}, "log": str(log)})
        try:
            if ready:
                process.stdin.write(order.encode() + b"\n")
                process.stdin.close()
                process.stdout.close()
                self._process = None
                return process
        except BrokenPipeError:
            pass
        self.close()
        return None

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def main() -> None:
    """The process' end: import, wait for one line, be torchrun."""
    told = os.dup(1)
    os.dup2(2, 1)  # what libraries print while they are imported is no answer
    importing = threading.Thread(target=_import, args=(told,), daemon=True)
    importing.start()
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        os._exit(0)  # the agent is gone; also in the middle of the import
    importing.join()
    _go_on(**json.loads(line))


def _import(told: int) -> None:
    os.nice(19)  # of this thread alone, as Linux has it: what torchrun starts later must not inherit it
    import torch.distributed.run  # noqa: F401

    os.write(told, READY)
    os.close(told)


def _go_on(command: list[str], environment: dict[str, str], log: str) -> None:
    from torch.distributed import run

    os.environ.clear()
    os.environ.update(environment)
    for descriptor, flags, path in ((0, os.O_RDONLY, os.devnull), (1, os.O_WRONLY | os.O_APPEND, log)):
        opened = os.open(path, flags | os.O_CREAT, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)
    sys.argv = ["torchrun", *command[len(TORCHRUN) :]]
    main: Any = run.main
    main(sys.argv[1:])


if __name__ == "__main__":
    main()
