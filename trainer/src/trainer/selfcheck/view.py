"""The machine as the checks see it: files, commands, mounts, time. A test brings another one; nothing here raises."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

COMMAND_SECONDS = 10.0


@dataclass(frozen=True)
class Done:
    """A program that ended; ``output``: standard output, or standard error where that is empty."""

    code: int
    output: str


class Host:
    """This machine. What cannot be read is None or empty: unknown, never zero."""

    @property
    def environment(self) -> Mapping[str, str]:
        return os.environ

    def read(self, path: str) -> str | None:
        try:
            return Path(path).read_text(errors="replace")
        except OSError:
            return None

    def names(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def opens(self, path: str) -> str | None:
        """None where the file can be opened, else the system's reason why not."""
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
        except OSError as error:
            return error.strerror or "refused"
        return None

    def run(self, *command: str) -> Done | None:
        """None where the program is not there or does not end in time."""
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_SECONDS
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        return Done(done.returncode, done.stdout or done.stderr)

    def total_mib(self, path: str) -> float | None:
        """Size of the file system at ``path``."""
        try:
            return shutil.disk_usage(path).total / 2**20
        except OSError:
            return None

    def free_gib(self, path: str) -> float | None:
        try:
            return shutil.disk_usage(path).free / 2**30
        except OSError:
            return None

    def is_mount(self, path: str) -> bool:
        return os.path.ismount(path)

    def clock(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
