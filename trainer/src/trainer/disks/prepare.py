"""Does what is planned: scratch space first, then the mounts. No fault here keeps a node from its work.

Scratch space that is not there costs speed only: the node works on its root disk. A mount that is not there ends the
runs that need it, with its reason, and no others.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from ..contracts.lustre import LustreDocument
from ..contracts.node_document import NodeDocument, Scratch
from .mounts import LUSTRE_PATH, Mount, plan_mounts
from .report import DisksReport
from .scratch import LSBLK, Command, plan_scratch, read_lsblk

COMMAND_SECONDS = 60.0
LATE_SECONDS = 5.0  # of a command when patience is over: enough for one that works
IMAGE_SECONDS = 60.0  # how long the image's own service may take to mount the disks
# At boot the network and its names may be late, and a new file system's name is (awsome-distributed-ai#632, #678).
PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0)
# For everything together: the launching hook gives a node up that shows no sign of life for 15 minutes.
PATIENCE_SECONDS = 300.0
SCRATCH_FOLDER = "trainer"  # below the scratch mount: the agent's own

T = TypeVar("T")
ReadLustre = Callable[[str], LustreDocument]  # key in the artifacts bucket


class CommandFailed(Exception):
    """One line: which program, and what it said last."""


class Host:
    """What is done to the machine."""

    def is_mount(self, path: str) -> bool:
        return os.path.ismount(path)

    def has(self, program: str) -> bool:
        return shutil.which(program) is not None

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def clock(self) -> float:
        return time.monotonic()

    def log(self, line: str) -> None:
        print(line, flush=True)

    def run(self, command: Command, limit_seconds: float = COMMAND_SECONDS) -> str:
        """Its output; raises CommandFailed. What is over its limit is killed and not waited for: a mount that hangs in
        the kernel takes no signal.
        """
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        except FileNotFoundError:
            raise CommandFailed(f"{command[0]} is not on the image") from None
        try:
            output, errors = process.communicate(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            raise CommandFailed(f"{command[0]} took longer than {limit_seconds:.0f} s") from None
        if process.returncode:
            said = (errors.strip() or output.strip() or "it said nothing").splitlines()[-1]
            raise CommandFailed(f"{command[0]} ended with {process.returncode}: {said}")
        return output


@dataclass
class Disks:
    """The disks of one node; `prepare` may be called again."""

    document: NodeDocument
    read_lustre: ReadLustre
    owner: tuple[int, int]  # user and group of the agent
    host: Host = field(default_factory=Host)
    _give_up_at: float = field(init=False, default=0.0)

    def prepare(self) -> DisksReport:
        self._give_up_at = self.host.clock() + PATIENCE_SECONDS
        told, scratch = self._scratch(self.document.scratch)
        self.host.log(f"disks: scratch: {told}")
        failures: dict[str, str] = {}
        lustre = None
        if self.document.lustre_key is not None:
            try:
                lustre = self._with_patience(lambda: self.read_lustre(str(self.document.lustre_key)))
            except Exception as error:
                failures[LUSTRE_PATH] = f"{self.document.lustre_key} could not be read: {_line(error)}"
        for mount in plan_mounts(self.document, lustre, scratch):
            try:
                self._mount(mount)
            except (CommandFailed, OSError) as error:
                failures[mount.path] = _line(error)
        for path, why in failures.items():
            self.host.log(f"disks: {path}: FAILED: {why}")
        return DisksReport(scratch=told, failures=failures)

    def _scratch(self, scratch: Scratch | None) -> tuple[str, str | None]:
        """One line, and where scratch space is; None: the node works on the root disk."""
        if scratch is None:
            return "none is expected", None
        try:
            if scratch.owner == "image":
                told, usable = self._scratch_of_the_image(scratch.path)
            else:
                plan = plan_scratch(read_lsblk(self.host.run(LSBLK)), scratch.path)
                Path(scratch.path).mkdir(parents=True, exist_ok=True)
                for command in plan.commands:
                    self.host.run(command)
                told, usable = plan.told, plan.usable
            if not usable:
                return f"{told}; working on the root disk", None
            _own_folder(Path(scratch.path) / SCRATCH_FOLDER, self.owner)
        except (CommandFailed, OSError, ValueError) as error:
            return f"FAILED: {_line(error)}; working on the root disk", None
        return f"{told}, at {scratch.path}", scratch.path

    def _scratch_of_the_image(self, path: str) -> tuple[str, bool]:
        deadline = self.host.clock() + IMAGE_SECONDS
        while not self.host.is_mount(path):
            if self.host.clock() > deadline:
                return f"the image mounted nothing at {path} within {IMAGE_SECONDS:.0f} s", False
            self.host.sleep(1)
        return "made by the image", True

    def _mount(self, mount: Mount) -> None:
        if self.host.is_mount(mount.path):
            self.host.log(f"disks: {mount.path}: mounted already")
            return
        if not self.host.has(mount.program):
            raise CommandFailed(mount.missing)
        Path(mount.path).mkdir(parents=True, exist_ok=True)
        if mount.cache is not None:
            _own_folder(Path(mount.cache), (os.getuid(), os.getgid()))
        self._with_patience(lambda: self.host.run(mount.command, self._limit_seconds()))
        self.host.log(f"disks: {mount.path}: mounted")

    def _limit_seconds(self) -> float:
        """Of one command: what is left of the time for everything, so that many that hang take no longer than one."""
        return min(COMMAND_SECONDS, max(LATE_SECONDS, self._give_up_at - self.host.clock()))

    def _with_patience(self, action: Callable[[], T]) -> T:
        for pause in PAUSES_SECONDS:
            try:
                return action()
            except Exception as error:
                if self.host.clock() + pause > self._give_up_at:
                    raise
                self.host.log(f"disks: {_line(error)}; once more in {pause:.0f} s")
                self.host.sleep(pause)
        return action()


def _own_folder(folder: Path, owner: tuple[int, int]) -> None:
    """For its owner alone. A link in its place is refused: root would give away what it points to."""
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_symlink():
        raise OSError(f"{folder} is a link")
    os.chown(folder, *owner, follow_symlinks=False)
    folder.chmod(0o700)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
