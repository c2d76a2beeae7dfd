"""Two contestants, round by round: above 1 we are faster."""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@contextmanager
def kept_environment() -> Iterator[None]:
    """What a contestant puts into the environment (its rank, where its AWS is) is not the next one's."""
    before = dict(os.environ)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


@dataclass(frozen=True)
class Race:
    """Round by round, each next to the other's; empty where the peer is not installed."""

    what: str
    peer: str
    target: float
    ours: list[float]
    theirs: list[float]
    unit: str  # "s", or "samples/s"

    @property
    def ratios(self) -> list[float]:
        pairs = zip(self.ours, self.theirs, strict=True) if self.theirs else ()
        return [theirs / ours if self.unit == "s" else ours / theirs for ours, theirs in pairs]

    def row(self) -> tuple[str, str, str, str]:
        """For the table of `make bench`: what, median, lowest to highest, held to."""
        what, target = f"{self.what}, to {self.peer}", f"at least {self.target}"
        if not self.theirs:
            return what, "not installed", "", target
        ours, theirs = (_amount(statistics.median(values), self.unit) for values in (self.ours, self.theirs))
        low, high = min(self.ratios), max(self.ratios)
        ratio = f"{statistics.median(self.ratios):.2f}"
        return f"{what} ({ours} to {theirs})", ratio, f"{low:.2f} to {high:.2f}", target

    def to_json(self) -> dict[str, Any]:
        return {
            "what": self.what,
            "peer": self.peer,
            "unit": self.unit,
            "ours": self.ours,
            "theirs": self.theirs,
            "ratio": statistics.median(self.ratios) if self.ratios else None,
            "limitRatio": self.target,
        }


def _amount(value: float, unit: str) -> str:
    return f"{value:.2f} s" if unit == "s" else f"{value:,.0f}/s"


def turn(contestants: Iterable[str], number: int) -> list[str]:
    """Who goes when in a round: every other one backwards, so that none always meets what the same one left."""
    return list(contestants)[:: -1 if number % 2 else 1]


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
