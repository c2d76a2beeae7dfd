"""How long a fault was not noticed, how long it kept the run from training, and what that cost. Pure.

All times are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

from .evidence import NodeLife, RunEvidence, lost_steps

WARNINGS = ("warning", "error", "critical")
SHORT_GAP_SECONDS = 1.0  # a save, an evaluation
USUAL_STEPS = 5  # so many at once are no gap
WORKERS_ENDED = "workers ended"  # the agent's line at the end of a generation


@dataclass(frozen=True)
class Timing:
    """None: does not apply, or is not known; never 0 for that."""

    detection_seconds: float | None  # injection -> first sign of it on any node; None: no node noticed
    detected_by: str | None  # that sign
    recovery_seconds: (
        float | None
    )  # injection -> first step of a later generation; None: was not, or for good, stopped
    after_healing_seconds: (
        float | None
    )  # the same from where the fault was lifted; None: recovered before, or not lifted
    lost_steps: int | None  # done and done again, at all regroupings after the injection
    billed_idle_seconds: (
        float | None
    )  # node-seconds without a step, from the injection until recovery or the run's end


def timing(evidence: RunEvidence, injected_at: float, healed_at: float | None = None) -> Timing:
    signs = sorted(_signs(evidence, injected_at))
    recovered_at = _recovered_at(evidence, injected_at)
    after_healing = None
    if recovered_at is not None and healed_at is not None and recovered_at > healed_at:
        after_healing = recovered_at - healed_at
    return Timing(
        detection_seconds=signs[0][0] - injected_at if signs else None,
        detected_by=signs[0][1] if signs else None,
        recovery_seconds=None if recovered_at is None else recovered_at - injected_at,
        after_healing_seconds=after_healing,
        lost_steps=lost_steps(evidence.generations, injected_at) if evidence.generations else None,
        billed_idle_seconds=_idle(evidence, injected_at, recovered_at),
    )


def _signs(evidence: RunEvidence, since: float) -> Iterator[tuple[float, str]]:
    """Time and words of everything that says that something is wrong."""
    for line in evidence.agent_lines:
        ended = line.event == WORKERS_ENDED and line.fields.get("code") != 0
        if line.time >= since and (line.level in WARNINGS or ended):
            yield line.time, f"{line.level} of {line.instance_id}: {line.event}"
    for stop in evidence.node_stops:
        if stop.time >= since:
            yield stop.time, f"end of {stop.instance_id}: {stop.line}"
    for generation in evidence.generations:
        for (instance_id, rank), events in generation.by_rank.items():
            for event in events:
                if event.time >= since and event.kind in ("stopped", "error"):
                    why = event.message if event.kind == "error" else event.reason
                    yield event.time, f"worker rank {rank} on {instance_id}: {event.kind}, {why}"


def _recovered_at(evidence: RunEvidence, injected_at: float) -> float | None:
    """The first step of the first generation that was begun after the injection and made one."""
    steps = (
        generation.steps[0].time
        for generation in evidence.generations
        if generation.started is not None and generation.started.time > injected_at and generation.steps
    )
    return min(steps, default=None)


def _idle(evidence: RunEvidence, injected_at: float, recovered_at: float | None) -> float | None:
    """From the last step before the gap to the step that ends it, for each node as long as it was billed."""
    end = recovered_at
    if end is None:
        result = evidence.result
        if result is None or not evidence.lives:
            return None
        if result.status == "finished":
            return 0.0  # nothing stopped it
        end = datetime.fromisoformat(result.finished_at.replace("Z", "+00:00")).timestamp()
    if not evidence.lives:
        return None
    return sum(
        _overlap(life, begin, until)
        for begin, until in _gaps(evidence, injected_at, end)
        for life in evidence.lives
    )


def _gaps(evidence: RunEvidence, begin: float, end: float) -> list[tuple[float, float]]:
    """Where no rank 0 made a step for long: a hung rank that is woken to be looked at may make one in between."""
    steps = sorted(e.time for g in evidence.generations for e in g.steps)
    usual = median([later - earlier for earlier, later in pairwise(steps)] or [0.0])
    inside = [time for time in steps if begin < time < end]
    points = [max([begin, *(time for time in steps if time <= begin)]), *inside, end]
    return [
        (max(begin, earlier), later)
        for earlier, later in pairwise(points)
        if later - earlier > max(SHORT_GAP_SECONDS, USUAL_STEPS * usual)
    ]


def _overlap(life: NodeLife, begin: float, end: float) -> float:
    until = end if life.until is None else min(end, life.until)
    return max(0.0, until - max(begin, life.since))
