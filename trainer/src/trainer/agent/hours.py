"""How long a run has trained, over all its generations, and how a node's minutes without training are counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..contracts.cost import RunUsage
from ..contracts.run import Generation, MemberReport

COUNT_SECONDS = 60.0  # the period of the alarm that stops idle groups


def trained_seconds(
    reports: Mapping[str, MemberReport], generation: Generation | None, earlier: RunUsage | None
) -> float:
    """The longest that anybody knows of. Each member goes on from what its generation began with, on its own clock, and
    its report outlives it; what earlier lives of the run had is in usage.json.
    """
    known = [report.trained_seconds for report in reports.values()]
    known += [generation.trained_seconds] if generation else []
    known += [earlier.trained_seconds] if earlier else []
    return max(known, default=0.0)


@dataclass
class TrainingCount:
    """Once a minute: did this node train since the last count? A short break between two generations is none."""

    _next: float | None = None  # monotonic seconds
    _trained: bool = False

    def look(self, now: float, trains: bool) -> int | None:
        """Called often; 1 or 0 when a count is due, else None. The first is due after a whole minute."""
        self._trained = self._trained or trains
        if self._next is None:
            self._next = now + COUNT_SECONDS
        if now < self._next:
            return None
        # From now on, not from when it was due: after a pause there are no counts to catch up with.
        self._next, counted, self._trained = now + COUNT_SECONDS, self._trained, trains
        return int(counted)
