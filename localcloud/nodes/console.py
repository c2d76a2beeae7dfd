"""A node's console: lines with time stamps, written by its init, read here for the steps of its boot."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

LINE = re.compile(r"^(\d{4}-\d\d-\d\dT\S+Z) bootstrap: (.+)$")
AGENT_STARTED = (
    "agent started",
    "done",
)  # by the start hook; by user data, which leaves the start to systemd
FAILED = "FAILED "
# On a machine node: what systemd says of the agent's unit, and the agent's own last line (systemd tells no end that
# counts as a success).
UNIT_STARTED = re.compile(r"Started trainer\.service\b")
UNIT_ENDED = re.compile(r"trainer\.service: Main process exited, code=exited, status=(\d+)")
AGENT_LEAVES = re.compile(r'(?=.*"event": "(?:leaving|agent ended)).*"code": (\d+)')


def parse(line: str) -> tuple[float, str] | None:
    """Unix time and text of a `bootstrap:` line; None for any other."""
    found = LINE.match(line)
    if found is None:
        return None
    return datetime.fromisoformat(found.group(1).replace("Z", "+00:00")).timestamp(), found.group(2)


class Console:
    """Follows the file; `steps` are the boot's steps with seconds since the first one."""

    def __init__(self, path: Path):
        self.path = path
        self.steps: list[dict[str, Any]] = []
        self.boot_seconds: float | None = None  # until the agent was started
        self.agent_started = False
        self.agent_exit: int | None = None  # how the agent's unit ended the last time
        self.failure: str | None = None  # `55 BOOT_RELEASE_HASH: …`, as the bootstrap gave it
        self._offset = 0
        self._first: float | None = None

    def restart(self) -> None:
        """A new boot begins; what the file holds already belongs to the last one."""
        self._offset = self.path.stat().st_size if self.path.exists() else 0
        self.steps, self.boot_seconds, self.agent_started, self.failure = [], None, False, None
        self.agent_exit = None
        self._first = None

    def read(self) -> bool:
        """Take in complete new lines; True if there was a step among them."""
        if not self.path.exists():
            return False
        with self.path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._offset += len(complete)
        before = len(self.steps)
        for line in complete.decode(errors="replace").splitlines():
            parsed = parse(line)
            if UNIT_STARTED.search(line):
                self.agent_started = True
            if (ended := UNIT_ENDED.search(line) or AGENT_LEAVES.search(line)) is not None:
                self.agent_exit = int(ended[1])
            if parsed is not None and self.boot_seconds is None:
                self._step(*parsed)
        return len(self.steps) > before

    def _step(self, at: float, text: str) -> None:
        self._first = at if self._first is None else self._first
        seconds = round(at - self._first, 3)
        self.steps.append({"step": text, "seconds": seconds})
        if text.startswith(FAILED):
            self.failure = text.removeprefix(FAILED).strip()
        if text.startswith(AGENT_STARTED):
            self.agent_started, self.boot_seconds = True, seconds
