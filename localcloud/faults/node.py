"""A live node in the hands of the fault laboratory: its processes, its network, its disks.

A machine node's processes are those in its first process' PID namespace; a process node's carry its mark. Commands
run in the node's own network and mount namespaces, so that nothing outside of it is touched.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..nodes.process import NODE_MARKER
from ..processes import Identity, command_line, everyone, identify, marked

LIMIT_SECONDS = 30.0
WORKER = "trainer.worker"
AGENT = "trainer agent"
TORCHRUN = "torch.distributed.run"


class InjectionFailed(Exception):
    """The laboratory could not do to the node what it wanted to; the text says what."""


@dataclass(frozen=True)
class LiveNode:
    local: Path  # the stack's state folder
    instance_id: str

    @property
    def folder(self) -> Path:
        return self.local / "nodes" / self.instance_id

    @property
    def state_dir(self) -> Path:
        """The agent's state folder, seen from outside."""
        return self.folder / "root" / "var" / "lib" / "trainer"

    @property
    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "node.json").read_text())
        return found

    @property
    def is_machine(self) -> bool:
        return self.record.get("driver") == "machine"

    @property
    def address(self) -> str:
        """By which its peers know it."""
        record = self.record
        return str(record["privateIp"] if record.get("driver") == "machine" else record["address"])

    @property
    def init(self) -> int:
        found = self.record.get("init")
        if not found:
            raise InjectionFailed(f"{self.instance_id} has no first process")
        return int(found["pid"])

    def processes(self, pattern: str = "") -> list[Identity]:
        """Those whose command line contains the words, oldest first."""
        if self.is_machine:
            space = os.readlink(f"/proc/{self.init}/ns/pid")
            found = [p for pid in everyone() if _pid_space(pid) == space and (p := identify(pid))]
        else:
            found = marked(NODE_MARKER, self.instance_id)
        return sorted(
            (process for process in found if pattern in command_line(process.pid)), key=lambda p: p.started
        )

    def workers(self) -> list[Identity]:
        """The training processes, without torchrun above them."""
        return [process for process in self.processes() if _is_rank(process.pid)]

    def agents(self) -> list[Identity]:
        return [p for p in self.processes(AGENT) if "ExecStart" not in command_line(p.pid)]

    def signal_all(self, processes: Sequence[Identity], number: int) -> None:
        if not [process for process in processes if process.send(number)]:
            raise InjectionFailed(f"{self.instance_id} has no such process any more")

    def inside(self, *command: str, mounts: bool = False, stdin: str | None = None) -> str:
        """Run a command in the node's network namespace: the host's, or with `mounts` the node's own."""
        enter = [
            "nsenter",
            "--target",
            str(self.init),
            "--net",
            *(["--mount", "--pid"] if mounts else []),
            "--",
        ]
        done = subprocess.run(
            [*enter, *command],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise InjectionFailed(f"{self.instance_id}: {' '.join(command)}: {done.stderr.strip()}")
        return done.stdout


def _is_rank(pid: int) -> bool:
    """Started by torchrun, or forked from what the agent's standby has imported: then it is known by its name."""
    try:
        name = Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False
    command = command_line(pid)
    return name.startswith("rank-") or (WORKER in command and TORCHRUN not in command)


def _pid_space(pid: int) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None
