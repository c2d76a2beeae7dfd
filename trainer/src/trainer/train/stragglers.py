"""Which rank makes the others wait: its own work a step, against that of its peers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

WINDOW_STEPS = 20
SLOW_RATIO = 1.5
SLOW_SECONDS = 0.005  # more than the median: below it a ratio is noise


@dataclass(frozen=True)
class Straggler:
    rank: int
    ratio: float  # its busy seconds to those of the median rank, both medians of the window's steps


class Stragglers:
    """Looks at one window of steps after another; ``shares`` are the samples that each rank takes a step.

    The median of the ranks is the lower one of two, so that the slower of two ranks is seen. A rank with a larger
    share may be slower by as much.
    """

    def __init__(self, shares: Sequence[int]) -> None:
        usual = statistics.median_low(shares)
        self._allowance = [max(1.0, share / usual) for share in shares]
        self._window: list[Sequence[float]] = []
        self._told: int | None = None

    def take(self, busy_seconds: Sequence[float]) -> Straggler | None:
        """One step, by rank. Answers at a window's end, once for the same rank until a window is without it."""
        self._window.append(busy_seconds)
        if len(self._window) < WINDOW_STEPS:
            return None
        medians = [statistics.median(steps) for steps in zip(*self._window, strict=True)]
        self._window.clear()
        usual = statistics.median_low(medians)
        slow = {
            rank: seconds / max(usual, 1e-9)
            for rank, seconds in enumerate(medians)
            if seconds > SLOW_RATIO * usual * self._allowance[rank] and seconds >= usual + SLOW_SECONDS
        }
        before, self._told = self._told, max(slow, key=lambda rank: slow[rank], default=None)
        if self._told is None or self._told == before:
            return None
        return Straggler(self._told, slow[self._told])


class BusyClock:
    """Seconds of one rank's own work, on a GPU by its own events (which has not run on one yet)."""

    def __init__(self, device: torch.device) -> None:
        self._events = (
            [torch.cuda.Event(enable_timing=True) for _ in range(2)] if device.type == "cuda" else None
        )
        self._began = self._ended = 0.0

    def start(self) -> None:
        if self._events:
            self._events[0].record()
        self._began = time.monotonic()

    def stop(self) -> None:
        if self._events:
            self._events[1].record()
        self._ended = time.monotonic()

    def seconds(self) -> float:
        """From `start` to `stop`; waits for the GPU to get there."""
        if self._events:
            self._events[1].synchronize()
            return self._events[0].elapsed_time(self._events[1]) / 1000
        return self._ended - self._began
