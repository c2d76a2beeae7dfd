"""A torchrun that waits, and a forkserver below it that has the trainer imported: so the next generation need not
wait for imports, which take longer than all else of a recovery.

The agent starts one while a generation trains, and gives it the next one. It holds no secret before that, never
touches a device, costs about 750 MB of memory, and ends with the agent: the end of its input is its end.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
STANDBY = (sys.executable, "-m", "trainer.agent.standby")
RANK_SCRIPT = Path(__file__).with_name("forked_rank.py")
# For the ranks. The optimizer imports torch._dynamo when it is made, whether anything is compiled or not.
AHEAD = ("trainer.worker", "torch._dynamo")
READY = b"ready\n"
LEAST_MEMORY_GIB = (
    4.0  # that must be free: no recovery is worth a training that is killed for its standby's memory
)


@dataclass
class Standby:
    """The agent's end: ``prepare`` while there is time, ``take`` when there is none, ``close`` at last."""

    argv: Sequence[str]  # what to start; empty: there is never one
    _process: subprocess.Popen[bytes] | None = None
    _ready: bool = False

    def prepare(self, environment: Mapping[str, str]) -> None:
        """Start one, unless there was one since the last ``take``: one that died is not tried again and again."""
        if self._process is None and self.argv and available_gib() >= LEAST_MEMORY_GIB:
            self._ready = False
            self._process = subprocess.Popen(
                self.argv,
                env=environment,
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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


def available_gib() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) / (1 << 20) for line in lines if line.startswith("MemAvailable:"))


def main() -> None:
    """The process' end: import, wait for one line, be torchrun."""
    told = os.dup(1)
    os.dup2(2, 1)  # what libraries print while they are imported is no answer
    importing = threading.Thread(target=_get_ready, args=(told,), daemon=True)
    importing.start()
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):  # the agent is gone; also in the middle of the imports
        os.killpg(0, signal.SIGKILL)
    importing.join()
    _go_on(**json.loads(line))


def _get_ready(told: int) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["trainer.agent.forked_rank"])
    proof = context.Process(target=_prove)
    proof.start()
    import_aside("torch.distributed.run")
    proof.join()
    if proof.exitcode == 0:
        os.write(told, READY)
    os.close(told)


def _prove() -> None:
    """In a forked process: everything is imported, and nothing of it touched a GPU, which would forbid forks."""
    torch = sys.modules["torch"]
    sys.exit(not all(name in sys.modules for name in AHEAD) or torch.cuda._is_in_bad_fork())


def _go_on(command: list[str], environment: dict[str, str], log: str) -> None:
    """``command`` runs a module under torchrun; here torchrun's own options have it forked by the forkserver."""
    from torch.distributed import run

    os.environ.clear()
    os.environ.update(environment)
    output_to(log)
    sys.argv = ["torchrun", *command[len(TORCHRUN) :]]
    torchrun: Any = run
    asked = torchrun.parse_args(sys.argv[1:])
    asked.start_method, asked.run_path, asked.module = "forkserver", True, False
    asked.training_script_args = [json.dumps(environment), log, *asked.training_script_args]
    asked.training_script = str(RANK_SCRIPT)
    torchrun.run(asked)


def import_aside(*names: str) -> None:
    """Import at the lowest priority: of a thread alone, as Linux has it. What is started later does not inherit it."""

    def body() -> None:
        os.nice(19)
        for name in names:
            importlib.import_module(name)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()


def output_to(log: str) -> None:
    """Of this process: nothing to read, and both outputs at the end of the log."""
    for descriptor, flags, path in ((0, os.O_RDONLY, os.devnull), (1, os.O_WRONLY | os.O_APPEND, log)):
        opened = os.open(path, flags | os.O_CREAT, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.dup2(1, 2)


if __name__ == "__main__":
    main()
