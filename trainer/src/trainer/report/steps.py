"""A run's steps as columns of numbers, and events of other kinds: compact enough for millions of steps. Pure."""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from ..contracts.worker import WorkerEvent

# A column's name -> the event's key. What a step does not tell is NaN here, and nothing on the page.
COLUMNS = {
    "loss": "loss",
    "seconds": "seconds",
    "data_wait_seconds": "dataWaitSeconds",
    "learning_rate": "learningRate",
    "samples": "samples",
    "tokens": "tokens",
    "grad_norm": "gradNorm",
    "mfu": "mfu",
    "device_peak_bytes": "devicePeakBytes",
}
# A line that claims more than that is of nobody: neither a date nor a chart could show it.
LAST_TIME = 253402300800.0  # seconds since the epoch: the year 10000
MOST_STEPS = 1 << 62
LARGEST = 1e300


@dataclass
class Steps:
    """Numbers ascend; ``columns`` are as long as ``numbers``."""

    numbers: array[int] = field(default_factory=lambda: array("q"))
    columns: dict[str, array[float]] = field(default_factory=lambda: {name: array("d") for name in COLUMNS})

    def __len__(self) -> int:
        return len(self.numbers)

    def append(self, number: int, fields: dict[str, object]) -> None:
        """A step that was done before is done again: what follows from it is gone."""
        if self.numbers and number <= self.numbers[-1]:
            self.cut_after(number - 1)
        self.numbers.append(number)
        for name, key in COLUMNS.items():
            self.columns[name].append(_number(fields.get(key)))

    def cut_after(self, number: int) -> None:
        keep = bisect_right(self.numbers, number)
        del self.numbers[keep:]
        for column in self.columns.values():
            del column[keep:]

    def extend(self, other: Steps) -> None:
        """By the columns that there are here."""
        self.numbers.extend(other.numbers)
        for name, column in self.columns.items():
            column.extend(other.columns[name])


@dataclass
class Part:
    """What rank 0 of one generation told. ``first_at`` and ``last_at``: times of its first and last event."""

    generation: int
    instance_id: str
    steps: Steps = field(default_factory=Steps)
    events: list[WorkerEvent] = field(default_factory=list)  # all but steps and pauses
    first_at: float | None = None
    last_at: float | None = None
    step_seconds: float = 0.0  # of all steps that it did, also of those done again later
    wait_seconds: float = 0.0  # of them, waiting for data

    @property
    def resumed_at(self) -> int | None:
        return next((event.step for event in self.events if event.kind == "started"), None)

    def take(self, lines: Iterable[bytes]) -> None:
        """The next lines. Those that are not whole (the last one of a killed worker) or not ours are left out."""
        for line in lines:
            try:
                fields = json.loads(line)
                kind, at = fields["kind"], float(fields["time"])
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue
            if not 0 <= at < LAST_TIME:
                continue
            self.first_at = at if self.first_at is None else self.first_at
            self.last_at = at
            if kind == "step":
                self._take_step(fields)
            elif kind != "pause":
                try:
                    self.events.append(WorkerEvent.model_validate(fields))
                except ValidationError:  # of a newer release
                    continue

    def _take_step(self, fields: dict[str, object]) -> None:
        number = fields.get("step")
        if not isinstance(number, int) or not 0 <= number < MOST_STEPS:
            return
        self.steps.append(number, fields)
        seconds, waited = (self.steps.columns[name][-1] for name in ("seconds", "data_wait_seconds"))
        self.step_seconds += seconds if seconds == seconds else 0.0
        self.wait_seconds += waited if waited == waited else 0.0


def ordered(parts: Iterable[Part]) -> list[Part]:
    return sorted(parts, key=lambda part: (part.generation, part.first_at or 0.0))


def _number(value: object) -> float:
    """NaN for what is no number, and for one that no chart could hold."""
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST
    return float(value) if known else math.nan  # type: ignore[arg-type]


def merge(parts: Sequence[Part], names: Iterable[str] = COLUMNS) -> tuple[Steps, list[int]]:
    """The columns ``names`` of the run's steps as they were done last, and how many of each part's were done again
    after it."""
    merged, lost = Steps(columns={name: array("d") for name in names}), [0] * len(parts)
    for place, part in enumerate(parts):
        first = part.steps.numbers[0] - 1 if part.steps else None
        resumed = part.resumed_at if part.resumed_at is not None else first
        if resumed is None:
            continue
        if place and merged.numbers:
            lost[place - 1] = max(0, merged.numbers[-1] - resumed)
        merged.cut_after(resumed)
        merged.extend(part.steps)
    return merged, lost


@dataclass(frozen=True)
class Rates:
    """What follows from the columns, as long as they are; empty where no step told what it takes."""

    samples: array[float]  # a second, all ranks
    tokens: array[float]
    data_wait: array[float]  # share of the step

    @classmethod
    def of(cls, steps: Steps) -> Rates:
        return cls(
            per_second(steps, "samples"),
            per_second(steps, "tokens"),
            share(steps, "data_wait_seconds", "seconds"),
        )


def is_told(values: Iterable[float]) -> bool:
    return any(value == value for value in values)


def per_second(steps: Steps, name: str) -> array[float]:
    """What a counter (samples, tokens) grew by in each step, by the step's seconds; NaN where either is not told."""
    if not is_told(steps.columns[name]):
        return array("d")
    counts, seconds, numbers = steps.columns[name], steps.columns["seconds"], steps.numbers
    rates = array("d")
    for place in range(len(numbers)):
        if place == 0:
            grown = counts[0] if numbers[0] == 1 else math.nan
        else:
            grown = (
                counts[place] - counts[place - 1] if numbers[place] == numbers[place - 1] + 1 else math.nan
            )
        rates.append(grown / seconds[place] if seconds[place] > 0 else math.nan)
    return rates


def share(steps: Steps, part: str, whole: str) -> array[float]:
    """One column by another; NaN where either is not told."""
    if not is_told(steps.columns[part]):
        return array("d")
    pairs = zip(steps.columns[part], steps.columns[whole], strict=True)
    return array("d", (one / all_ if all_ > 0 else math.nan for one, all_ in pairs))


@dataclass(frozen=True)
class Bin:
    """Some neighbouring steps as one point: their middle, and mean, lowest and highest value."""

    x: float
    mean: float
    low: float
    high: float


def thin(xs: Sequence[float], ys: Sequence[float], most: int) -> list[Bin | None]:
    """At most ``most`` points at even distances; None is a gap: steps that are there and told no number."""
    if not is_told(ys):
        return []
    first, width = xs[0], (xs[-1] - xs[0]) / most or 1.0
    whole = len(xs) <= most
    bins: list[Bin | None] = []
    at, count, total, low, high, sum_x = -1, 0, 0.0, math.inf, -math.inf, 0.0

    def close() -> None:
        if count:
            bins.append(Bin(sum_x / count, total / count, low, high))
        elif at >= 0 and bins and bins[-1] is not None:
            bins.append(None)

    for place in range(len(xs)):
        x, y = xs[place], ys[place]
        here = place if whole else min(int((x - first) / width), most - 1)
        if here != at:
            close()
            at, count, total, low, high, sum_x = here, 0, 0.0, math.inf, -math.inf, 0.0
        if abs(y) < LARGEST:
            count += 1
            total += y
            sum_x += x
            low, high = min(low, y), max(high, y)
    close()
    while bins and bins[-1] is None:
        bins.pop()
    return bins
