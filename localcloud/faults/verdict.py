"""Did a run bear a fault as it must? A pure function of the evidence; every fault found is one line.

It must end with the right loss and every sample used once per epoch, or stop with the named exit code and a line
that says what to do. In both cases nothing is lost that a complete checkpoint held.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from trainer.contracts.run import RunResult
from trainer.contracts.worker import WorkerEvent
from trainer.data.order import GlobalOrder
from trainer.exit_codes import Exit

from .evidence import GenerationEvidence, RunEvidence, lost_steps, surviving_steps

LOSS_FELL_TO = 0.8  # of the first loss, at most, or the run has learnt nothing
LOSS_TOLERANCE = 0.02  # absolute; worlds of other sizes add up in another order
SHOWN = 5  # numbers of a kind in one line


@dataclass(frozen=True)
class Finished:
    """The run goes on to its end, whatever it had to do for that."""

    max_lost_steps: int | None = None  # done and done again; None: any number


@dataclass(frozen=True)
class StoppedWith:
    """The run fails with this exit code and a message that holds all these words, in any case of letters.

    A run without a result is judged by its nodes: one of them must have stopped so.
    """

    code: int
    words: tuple[str, ...]  # what to do


@dataclass(frozen=True)
class Unharmed:
    """The run does not even notice: one generation, no step lost."""


Expectation = Finished | StoppedWith | Unharmed


@dataclass(frozen=True)
class Verdict:
    passed: bool
    faults: tuple[str, ...]  # what was expected, what was found
    outcome: str  # what happened, good or bad: exit code and the line for people where it stopped


def judge(
    evidence: RunEvidence,
    expectation: Expectation,
    reference: RunResult | None,
    loss_tolerance: float = LOSS_TOLERANCE,
) -> Verdict:
    """`reference` is the result of the same run without a fault; None: this run is itself the reference."""
    if isinstance(expectation, StoppedWith):
        ending = _stopped(evidence, expectation)
    else:
        ending = _finished(evidence, expectation, reference, loss_tolerance)
    faults = (*ending, *_steps(evidence), *_checkpoints(evidence), *_terms(evidence))
    return Verdict(not faults, faults, _outcome(evidence))


# --- how it ended


def _finished(
    evidence: RunEvidence, expectation: Finished | Unharmed, reference: RunResult | None, tolerance: float
) -> list[str]:
    result = evidence.result
    if result is None or result.status != "finished" or result.exit_code != Exit.DONE:
        return [f"ending: expected finished with exit code 0, found {_ending(evidence)}"]
    faults = []
    total = _total_steps(evidence)
    if result.step != total:
        faults.append(f"last step: expected {_known(total)}, found {result.step}")
    if evidence.latest is None or evidence.latest.step != result.step:
        found = evidence.latest.step if evidence.latest else "no checkpoint"
        faults.append(f"last checkpoint: expected of the last step, {result.step}, found {found}")
    faults += _loss(result, reference, tolerance)
    lost = lost_steps(evidence.generations)
    limit = expectation.max_lost_steps if isinstance(expectation, Finished) else 0
    if limit is not None and lost > limit:
        faults.append(f"lost steps: expected at most {limit}, found {lost}")
    if isinstance(expectation, Unharmed) and len(evidence.generations) != 1:
        faults.append(f"generations: expected one, found {len(evidence.generations)}")
    return faults


def _loss(result: RunResult, reference: RunResult | None, tolerance: float) -> list[str]:
    first, last = result.first_loss, result.last_loss
    if first is None or last is None:
        return ["loss: expected a first and a last one, found none"]
    faults = []
    if last > LOSS_FELL_TO * first:
        faults.append(
            f"last loss: expected at most {LOSS_FELL_TO} of the first, {first:.4f}, found {last:.4f}"
        )
    if reference is not None:
        wanted = reference.last_loss
        if wanted is None or abs(last - wanted) > tolerance:
            text = "unknown" if wanted is None else f"{wanted:.4f}"
            faults.append(f"last loss: expected {text} (undisturbed) within {tolerance}, found {last:.4f}")
    return faults


def _stopped(evidence: RunEvidence, expectation: StoppedWith) -> list[str]:
    result, code = evidence.result, expectation.code
    if result is not None:
        found = [(result.exit_code, result.message)] if result.status == "failed" else []
    else:
        found = [(stop.code, stop.line) for stop in evidence.node_stops]
    messages = [message for found_code, message in found if found_code == code]
    if not messages:
        return [f"ending: expected failed with {_code(code)}, found {_ending(evidence)}"]
    lacking = [[word for word in expectation.words if word.lower() not in text.lower()] for text in messages]
    least = min(range(len(messages)), key=lambda place: len(lacking[place]))
    if lacking[least]:
        words = ", ".join(repr(word) for word in lacking[least])
        return [f"message: expected it to say {words}, found {messages[least]!r}"]
    return []


def _ending(evidence: RunEvidence) -> str:
    result = evidence.result
    if result is not None:
        return f"{result.status} with {_code(result.exit_code)}: {result.message}"
    if evidence.node_stops:
        stop = evidence.node_stops[-1]
        return f"no result, and {stop.instance_id} stopped with {_code(stop.code)}: {stop.line}"
    return "no result"


def _outcome(evidence: RunEvidence) -> str:
    result = evidence.result
    if result is None or result.status != "finished":
        return _ending(evidence)
    worlds = [g.started.world_size for g in evidence.generations if g.started is not None]
    if len(worlds) == 1:
        return f"finished, not interrupted, {worlds[0]} ranks"
    return f"finished with worlds of {', '.join(str(size) for size in worlds)} ranks"


# --- its steps


def _steps(evidence: RunEvidence) -> list[str]:
    """Every step from 1 to the last counts once, and used the samples that are its share of the epoch."""
    faults = []
    for generation in evidence.generations:
        if generation.steps and generation.started is None:
            faults.append(f"generation {generation.n}: expected a start before its steps, found none")
        if not generation.rank0 and generation.newest_step:
            faults.append(f"generation {generation.n}: expected events of rank 0, found only other ranks'")
    counted = surviving_steps(evidence.generations)
    steps = Counter(event.step or 0 for _, event in counted)
    last = max(steps, default=0)
    if evidence.result is not None and evidence.result.status == "finished":
        last = _total_steps(evidence) or last
    missing = [step for step in range(1, last + 1) if step not in steps]
    if missing:
        faults.append(f"steps: expected each once, found none of {_numbers(missing)}")
    for step, times in sorted(steps.items()):
        if times > 1:
            where = ", ".join(str(n) for n, event in counted if event.step == step)
            faults.append(f"step {step}: expected once, found {times} times (generations {where})")
    if beyond := sorted(step for step in steps if step > last):
        faults.append(f"steps: expected {last} at most, found {_numbers(beyond)}")
    return faults + _samples(evidence, [event for _, event in counted])


def _samples(evidence: RunEvidence, steps: Sequence[WorkerEvent]) -> list[str]:
    order = _order(evidence)
    if not steps:
        return []
    if order is None:
        return [
            "samples: expected the run's order to be known, found no configuration or no dataset on any node"
        ]
    sums = [(event, int(order.step_batch((event.step or 1) - 1).sum())) for event in steps]
    wrong = [(event, wanted) for event, wanted in sums if event.sample_sum != wanted]
    if not wrong:
        return []
    event, wanted = wrong[0]
    numbers = _numbers(sorted({event.step or 0 for event, _ in wrong}))
    return [
        f"samples of steps {numbers}: expected the order's own, found others "
        f"(step {event.step}: sum {wanted} expected, {event.sample_sum} found)"
    ]


def _order(evidence: RunEvidence) -> GlobalOrder | None:
    if evidence.config is None or evidence.train_samples is None:
        return None
    training = evidence.config.training
    return GlobalOrder(evidence.train_samples, training.global_batch_size, training.seed)


def _total_steps(evidence: RunEvidence) -> int | None:
    """As `trainer.train.plan` counts them; None where configuration or dataset are not known."""
    training = evidence.config.training if evidence.config else None
    if training is not None and training.steps is not None:
        return training.steps
    order = _order(evidence)
    if training is None or order is None:
        return None
    return math.floor((training.epochs or 0) * order.steps_per_epoch)


# --- its checkpoints


def _checkpoints(evidence: RunEvidence) -> list[str]:
    """One line of descent in the bucket, and `latest` points into it."""
    faults = [f"{key}: expected a manifest, found something else" for key in evidence.broken_manifests]
    latest = evidence.latest
    # As a resume sees them: a manifest ahead of `latest` by an older generation was fenced off (trainer.train.lineage).
    line = sorted(
        (m for m in evidence.manifests
         if latest is None or m.generation >= latest.generation or m.step <= latest.step),
        key=lambda manifest: manifest.step,
    )  # fmt: skip
    for older, newer in pairwise(line):
        if newer.step == older.step:
            of = f"generations {older.generation} and {newer.generation}"
            faults.append(f"checkpoint of step {newer.step}: expected one manifest, found two ({of})")
        elif newer.generation < older.generation:
            faults.append(
                "checkpoints: expected generations that never fall along the steps, found step "
                f"{older.step} of generation {older.generation} before step {newer.step} of {newer.generation}"
            )
    if latest is None:
        if line:
            faults.append("latest: expected a pointer to a checkpoint, found none")
        return faults
    if all(manifest.step != latest.step for manifest in line):
        there = _numbers([manifest.step for manifest in line]) or "no checkpoint"
        faults.append(f"latest: expected a step that is there ({there}), found {latest.step}")
    if not evidence.checkpoint_verified:
        faults.append(
            f"latest: expected the bytes that its manifest names, found others (step {latest.step})"
        )
    return faults


def _terms(evidence: RunEvidence) -> list[str]:
    """Each generation goes on from the newest complete checkpoint, ends all older terms, and stops at one step."""
    faults = []
    for place, generation in enumerate(evidence.generations):
        faults += _common_stop(generation)
        started = generation.started
        if started is None:
            continue
        resumed, n = started.step or 0, generation.n
        saves = [
            (older.n, e)
            for older in evidence.generations[:place]
            for e in older.rank0
            if e.kind == "checkpoint" and (e.step or 0) > resumed
        ]
        if complete := [e.step or 0 for _, e in saves if e.time <= started.time]:
            faults.append(
                f"generation {n}: expected to go on from step {max(complete)}, whose checkpoint was complete, "
                f"found {resumed}"
            )
        faults += [
            f"generation {older}: expected no checkpoint once generation {n} had begun, found step {e.step}"
            for older, e in saves
            if e.time > started.time
        ]
    return faults


def _common_stop(generation: GenerationEvidence) -> list[str]:
    """All ranks that stopped as planned did so at one step, and nobody went on beyond it."""
    stops = {
        rank: event.step or 0
        for (_, rank), events in generation.by_rank.items()
        for event in events
        if event.kind == "stopped"
    }
    if not stops:
        return []
    if len(set(stops.values())) > 1:
        found = ", ".join(f"rank {rank} at {step}" for rank, step in sorted(stops.items()))
        return [f"stop of generation {generation.n}: expected all ranks at one step, found {found}"]
    stop = max(stops.values())
    if generation.newest_step > stop:
        return [
            f"stop of generation {generation.n}: expected at step {stop}, found step {generation.newest_step}"
        ]
    return []


# --- words


def _code(code: int) -> str:
    name = Exit(code).name if code in set(Exit) else "unknown"
    return f"exit code {code} ({name})"


def _known(value: int | None) -> str:
    return "a known number" if value is None else str(value)


def _numbers(numbers: Iterable[int]) -> str:
    """`3, 7 to 12, 20 and 4 more`: consecutive ones as a range."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in ranges]
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return ", ".join(texts[:SHOWN]) + more
