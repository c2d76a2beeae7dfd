"""A run in a few numbers, as its rank 0 told it, over all generations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..contracts.worker import WorkerEvent
from ..train.summary import loss_summary
from .steps import Part, merge

RECENT_STEPS = 50


@dataclass(frozen=True)
class Progress:
    step: int = 0
    total_steps: int | None = None
    epochs: float = 0.0
    loss: float | None = None  # of the last step
    first_loss: float | None = None  # mean of the first tenth of the steps
    last_loss: float | None = None
    eval_loss: float | None = None
    eval_accuracy: float | None = None
    seconds_per_step: float | None = None  # median of the last generation's last steps
    checkpoint_step: int | None = None


def progress_of(parts: Sequence[Part]) -> Progress:
    """Sum up the generations, in their order. A step done twice counts as its last time."""
    steps, _ = merge(parts, ("loss",))
    losses = steps.columns["loss"]
    events = [event for part in parts for event in part.events]
    finished, evaluated = _last(events, "finished"), _last(events, "eval")
    started, saved = _last(events, "started"), _last(events, "checkpoint")
    first, last = finished.first_loss if finished else None, finished.last_loss if finished else None
    if first is None and (known := [loss for loss in losses if loss == loss]):
        first, last = loss_summary(known)
    told = finished if finished is not None and finished.eval_loss is not None else evaluated
    recent = parts[-1].steps.columns["seconds"][-RECENT_STEPS:] if parts else []
    seconds = sorted(value for value in recent if value > 0)
    return Progress(
        step=steps.numbers[-1] if steps else (finished.step or 0) if finished else 0,
        total_steps=started.total_steps if started else None,
        epochs=(finished.epochs or 0.0) if finished else 0.0,
        loss=losses[-1] if losses and math.isfinite(losses[-1]) else None,
        first_loss=first,
        last_loss=last,
        eval_loss=told.eval_loss if told else None,
        eval_accuracy=told.eval_accuracy if told else None,
        seconds_per_step=seconds[len(seconds) // 2] if seconds else None,
        checkpoint_step=saved.step if saved else None,
    )


def _last(events: Sequence[WorkerEvent], kind: str) -> WorkerEvent | None:
    return next((event for event in reversed(events) if event.kind == kind), None)
