"""Requests to stop or to save: files from the agent, or SIGTERM. Ranks look at step boundaries, the maximum counts."""

from __future__ import annotations

import signal
from pathlib import Path
from types import FrameType

from ..contracts.worker import SAVE_FILE, STOP_FILE, StopReason

# By weight: where ranks were told different things, the heaviest reason is the world's.
REASONS: tuple[StopReason, ...] = ("regroup", "sigterm", "limit", "user", "notice")


class StopRequest:
    def __init__(self, gen_dir: Path) -> None:
        self._file = gen_dir / STOP_FILE
        self._save_file = gen_dir / SAVE_FILE
        self._signalled = False

    def listen(self) -> None:
        """Answer SIGTERM with a stop at the next step boundary instead of dying.

        Further ones change nothing: torchrun forwards what the process group has already got, and a save must
        not die of the echo. Whoever cannot wait sends SIGKILL.
        """
        signal.signal(signal.SIGTERM, self._on_sigterm)

    def ask(self) -> None:
        """As a SIGTERM does."""
        self._signalled = True

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self.ask()

    def weight(self) -> int:
        """0: go on; else 1 + the place of the reason in REASONS."""
        try:
            text = self._file.read_text().strip()
        except FileNotFoundError:
            return _weight("sigterm") if self._signalled else 0
        return next((_weight(reason) for reason in REASONS if reason == text), _weight("sigterm"))

    def take_save(self) -> bool:
        """Was a save asked for? Takes the request with it: of the ranks of a node, one answers True."""
        try:
            self._save_file.unlink()
        except FileNotFoundError:
            return False
        return True


def _weight(reason: StopReason) -> int:
    return 1 + REASONS.index(reason)


def reason_of(weight: int) -> StopReason:
    return REASONS[weight - 1]
