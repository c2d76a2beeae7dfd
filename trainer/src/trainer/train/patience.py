"""What is done about steps that give no number: a pure decision, the same on every rank.

A loss or a gradient that is not finite changes no weight. ``nonFinite: stop`` ends the run there. ``skip`` leaves the
step out and counts it; after ``nonFiniteLimit`` of them in a row the run goes back to its last checkpoint, once: what
was a fault of the hardware does not come again, what is one of the data or the settings does, and ends it then.

An overflow of fp16's scaled gradients is no such fault, it is how the scaler finds its scale; only where that finds
none the run ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..contracts.run import TrainingConfig

SMALLEST_SCALE = 1.0  # of fp16 gradients: where even this overflows, the run is lost
OVERFLOWS_IN_A_ROW = 20  # from torch's first scale, 65536, it takes 17 to get below 1

Outcome = Literal["number", "no number", "overflow"]
Verdict = Literal["go on", "roll back", "stop"]


@dataclass
class Patience:
    skip: bool
    limit: int  # steps in a row
    may_roll_back: bool = True
    in_a_row: int = 0
    overflows_in_a_row: int = 0
    skipped: int = 0  # in all, since this start

    @classmethod
    def of(cls, training: TrainingConfig) -> Patience:
        can_resume = training.resume == "auto"
        return cls(training.non_finite == "skip", training.non_finite_limit, can_resume)

    def take(self, outcome: Outcome, scale: float = SMALLEST_SCALE) -> Verdict:
        """After each step; ``scale``: the scaler's, after it was updated."""
        if outcome == "number":
            self.in_a_row = self.overflows_in_a_row = 0
            return "go on"
        self.skipped += 1
        if outcome == "overflow":
            self.overflows_in_a_row += 1
            lost = scale < SMALLEST_SCALE or self.overflows_in_a_row >= OVERFLOWS_IN_A_ROW
            return "stop" if lost else "go on"
        self.in_a_row += 1
        if not self.skip:
            return "stop"
        if self.in_a_row < self.limit:
            return "go on"
        if not self.may_roll_back:
            return "stop"
        self.may_roll_back, self.in_a_row = False, 0
        return "roll back"
