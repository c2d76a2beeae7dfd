"""A run's life in time: its generations, what ended them, and what the hours went into. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..contracts.worker import WorkerEvent
from ..exit_codes import Exit
from .steps import Part


@dataclass(frozen=True)
class Chapter:
    """One generation. ``end_at`` is the time of its last event."""

    generation: int
    instance_id: str  # of the node of rank 0
    world_size: int | None
    begin_at: float
    end_at: float
    first_step: int  # resumed at; 0: from the beginning
    last_step: int
    lost_steps: int  # done here and again later
    ending: str

    @property
    def seconds(self) -> float:
        return self.end_at - self.begin_at


@dataclass(frozen=True)
class TimeSpent:
    """Seconds between the first and the last event; ``steps`` without the waiting for data."""

    steps: float
    data_wait: float
    saves: float
    evaluations: float
    between: float  # from one generation's last word to the next one's first step or event
    other: float

    @property
    def total(self) -> float:
        return self.steps + self.data_wait + self.saves + self.evaluations + self.between + self.other


def chapters(parts: Sequence[Part], lost: Sequence[int]) -> list[Chapter]:
    """``lost``: what `steps.merge` found for each part."""
    found = []
    for part, lost_steps in zip(parts, lost, strict=True):
        if part.first_at is None or part.last_at is None:
            continue
        started = next((event for event in part.events if event.kind == "started"), None)
        first = started.step if started is not None and started.step is not None else 0
        if started is None and part.steps:
            first = part.steps.numbers[0] - 1
        found.append(
            Chapter(
                generation=part.generation,
                instance_id=part.instance_id,
                world_size=started.world_size if started else None,
                begin_at=part.first_at,
                end_at=part.last_at,
                first_step=first,
                last_step=part.steps.numbers[-1] if part.steps else first,
                lost_steps=lost_steps,
                ending=ending(part.events),
            )
        )
    return found


def ending(events: Sequence[WorkerEvent]) -> str:
    """What rank 0 told last of its end; a killed worker tells nothing."""
    for event in reversed(events):
        if event.kind == "finished":
            return "finished"
        if event.kind == "stopped":
            saved = "saved" if event.saved else "not saved"
            return f"stopped ({event.reason or 'no reason told'}), {saved}"
        if event.kind == "error":
            return f"{code_name(event.code)}: {event.message or 'no message'}"
    return "no word: killed, or still running"


def code_name(code: int | None) -> str:
    try:
        return f"{Exit(code).name} ({code})" if code is not None else "error"
    except ValueError:
        return f"exit code {code}"


def time_spent(parts: Sequence[Part]) -> TimeSpent | None:
    """None where nothing was told. Of a save counts what the loop stood still for."""
    told = [part for part in parts if part.first_at is not None and part.last_at is not None]
    if not told:
        return None
    events = [event for part in told for event in part.events]
    steps, wait = sum(part.step_seconds for part in told), sum(part.wait_seconds for part in told)
    saves = sum(event.stopped_seconds or 0.0 for event in events if event.kind == "checkpoint")
    evaluations = sum(event.seconds or 0.0 for event in events if event.kind == "eval")
    between = sum(
        max(0.0, (after.first_at or 0.0) - (before.last_at or 0.0)) for before, after in pairwise(told)
    )
    total = max(part.last_at or 0.0 for part in told) - min(part.first_at or 0.0 for part in told)
    other = total - steps - saves - evaluations - between
    return TimeSpent(max(0.0, steps - wait), wait, saves, evaluations, between, max(0.0, other))


def of_kind(parts: Sequence[Part], *kinds: str) -> list[tuple[int, WorkerEvent]]:
    """(generation, event) in order."""
    return [(part.generation, event) for part in parts for event in part.events if event.kind in kinds]


def median(values: Sequence[float]) -> float | None:
    finite = [value for value in values if value == value]
    return statistics.median(finite) if finite else None
