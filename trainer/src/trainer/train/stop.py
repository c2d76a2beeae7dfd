"""A request to stop: a file from the agent, or SIGTERM. Ranks look at step boundaries, the maximum counts."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

from ..contracts.worker import STOP_FILE, StopReason

# By weight: where ranks were told different things, the heaviest reason is the world's.
REASONS: tuple[StopReason, ...] = ("sigterm", "user", "notice")


class StopRequest:
    def __init__(self, gen_dir: Path) -> None:
        self._file = gen_dir / STOP_FILE
        self._signalled = False

    def listen(self) -> None:
        """Answer SIGTERM with a stop at the next step boundary instead of dying.

        Further ones change nothing: torchrun forwards what the process group has already got, and a save must
        not die of the echo. Whoever cannot wait sends SIGKILL.
        """
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self._signalled = True

    def weight(self) -> int:
        """0: go on; else 1 + the place of the reason in REASONS."""
        try:
            text = self._file.read_text().strip()
        except FileNotFoundError:
            return 1 + REASONS.index("sigterm") if self._signalled else 0
        return 1 + next((place for place, reason in enumerate(REASONS) if reason == text), 0)


def reason_of(weight: int) -> StopReason:
    return REASONS[weight - 1]
