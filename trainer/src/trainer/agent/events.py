"""What workers write into their event files: read as it grows, turned into metrics."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from ..contracts.worker import WorkerEvent
from ..obs.exporter import NodeState


def parse_events(lines: Iterable[bytes | str]) -> list[WorkerEvent]:
    """Events of the lines that are whole; a torn last line of a killed worker is left out."""
    events = []
    for line in lines:
        if line.strip():
            try:
                events.append(WorkerEvent.from_json(line))
            except ValidationError:
                continue
    return events


@dataclass
class Tail:
    """Reads complete new lines of one file, which may not exist yet."""

    path: Path
    _offset: int = 0

    def read(self) -> list[WorkerEvent]:
        try:
            with open(self.path, "rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        return parse_events(whole.splitlines())


RECENT_STEPS = 20

# metric -> field of a step's event; None and a field that was left out are not exported
LAST_STEP = {
    "trainer_mfu_ratio": "mfu",
    "trainer_grad_norm": "grad_norm",
    "trainer_learning_rate": "learning_rate",
    "trainer_device_memory_peak_bytes": "device_peak_bytes",
}
RATES = ("trainer_samples_per_second", "trainer_tokens_per_second", "trainer_data_wait_ratio")


@dataclass(frozen=True)
class StepShare:
    """What one step took and did; None: not told."""

    seconds: float
    waited: float | None
    samples: int | None
    tokens: int | None


def rates(steps: Iterable[StepShare]) -> dict[str, float | None]:
    """The RATES over some steps: whole steps, so that pauses to save or evaluate do not count."""
    known = list(steps)
    sums = [
        _sum_and_seconds([(step.samples, step.seconds) for step in known]),
        _sum_and_seconds([(step.tokens, step.seconds) for step in known]),
        _sum_and_seconds([(step.waited, step.seconds) for step in known]),
    ]
    return {
        name: amount / seconds if seconds > 0 else None
        for name, (amount, seconds) in zip(RATES, sums, strict=True)
    }


def _sum_and_seconds(pairs: Sequence[tuple[float | None, float]]) -> tuple[float, float]:
    told = [(amount, seconds) for amount, seconds in pairs if amount is not None]
    return sum(amount for amount, _ in told), sum(seconds for _, seconds in told)


@dataclass
class Meter:
    """Turns one rank's events into the node's metrics and remembers where the training is."""

    state: NodeState
    step: int | None = None  # the last one done, or resumed at
    first_step: int | None = None  # where this generation went on from
    _samples: int | None = None
    _tokens: int | None = None
    _recent: deque[StepShare] = field(default_factory=lambda: deque(maxlen=RECENT_STEPS))
    checkpoint_at: float | None = None

    def take(self, event: WorkerEvent) -> None:
        state = self.state
        if event.kind == "started":
            self._started(event)
        elif event.kind == "step":
            self.step = event.step
            state.set("trainer_step", event.step)
            state.set("trainer_loss", event.loss)
            state.set("trainer_loss_finite", 0.0 if event.non_finite else 1.0)
            if event.seconds is not None:
                state.observe("trainer_step_seconds", event.seconds)
            if event.data_wait_seconds is not None:
                state.add("trainer_data_wait_seconds_total", event.data_wait_seconds)
            samples, tokens = _more(event.samples, self._samples), _more(event.tokens, self._tokens)
            if samples is not None:
                state.add("trainer_samples_total", samples)
            if tokens is not None:
                state.add("trainer_tokens_total", tokens)
            self._samples, self._tokens = event.samples, event.tokens
            for metric, name in LAST_STEP.items():
                state.set(metric, getattr(event, name))
            if event.seconds is not None:
                self._recent.append(StepShare(event.seconds, event.data_wait_seconds, samples, tokens))
            for metric, value in rates(self._recent).items():
                state.set(metric, value)
        elif event.kind == "eval":
            state.set("trainer_eval_loss", event.eval_loss)
            state.set("trainer_eval_accuracy", event.eval_accuracy)
        elif event.kind == "checkpoint":
            self.checkpoint_at = event.time
            state.set("trainer_checkpoint_duration_seconds", event.seconds)
            state.set("trainer_checkpoint_stopped_seconds", event.stopped_seconds)
            state.add("trainer_checkpoints_total")

    def ended(self) -> None:
        """The workers are gone: what speaks of running ones is not known any more."""
        self._recent.clear()
        for metric in (*LAST_STEP, *RATES):
            self.state.set(metric, None)

    def progressed(self) -> bool:
        """True when this generation finished a step that was not done before it."""
        return self.step is not None and self.step > (self.first_step or 0)

    def _started(self, event: WorkerEvent) -> None:
        resumed = event.step or 0
        if self.step is not None:  # an earlier generation ran on this node
            self.state.add("trainer_lost_steps_total", max(0, self.step - resumed))
        self.step = self.first_step = resumed
        self._samples, self._tokens = event.samples, event.tokens
        self._recent.clear()
        self.state.set("trainer_total_steps", event.total_steps)


def _more(now: int | None, before: int | None) -> int | None:
    return None if now is None or before is None else max(0, now - before)
