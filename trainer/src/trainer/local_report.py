"""What a training on this machine shows: a table that grows, or its events as JSON lines, and a summary at the end."""

from __future__ import annotations

import time
from pathlib import Path

from .contracts.run import RunConfig
from .contracts.worker import WorkerEvent

ROW_SECONDS = 1.0  # at most a row in that time; first and last steps always
HEAD = f"{'step':>13}  {'loss':>9}  {'rate/s':>12}  {'waited':>6}  {'learning rate':>13}  {'grad norm':>9}"


class Report:
    def __init__(self, run: RunConfig, world: int, device: str, run_dir: Path, as_json: bool) -> None:
        self._run, self._world, self._device, self._run_dir, self._json = run, world, device, run_dir, as_json
        self._total = 0
        self._shown = 0.0
        self._steps: list[WorkerEvent] = []  # since the last row

    def take(self, event: WorkerEvent) -> None:
        if self._json:
            self._say(event.to_line().rstrip("\n"))
        elif event.kind == "step":
            self._step(event)
        elif event.kind == "started":
            self._started(event)
        else:
            self._other(event)

    def _started(self, event: WorkerEvent) -> None:
        self._total = event.total_steps or 0
        training = self._run.training
        self._say(
            f"run {self._run.name}: {training.model} on {training.dataset}, {self._world} "
            f"{'process' if self._world == 1 else 'processes'} ({self._device}), "
            f"{training.global_batch_size} samples a step, {self._total} steps; {self._run_dir}"
        )
        self._say(event.message or "")

    def _step(self, event: WorkerEvent) -> None:
        self._steps.append(event)
        first_or_last = event.step in (1, self._total) or (len(self._steps) == 1 and not self._shown)
        if time.monotonic() - self._shown < ROW_SECONDS and not first_or_last and not event.skipped:
            return
        if not self._shown:
            self._say(HEAD)
        self._shown = time.monotonic()
        seconds = sum(step.seconds or 0 for step in self._steps)
        samples = len(self._steps) * self._run.training.global_batch_size
        tokens = 0
        if event.tokens and event.step:
            tokens = len(self._steps) * event.tokens // event.step
        waited = sum(step.data_wait_seconds or 0 for step in self._steps)
        self._steps.clear()
        rate = f"{(tokens or samples) / max(seconds, 1e-9):,.0f} {'tok' if tokens else 'img'}"
        loss = "skipped" if event.skipped else _number(event.loss, ".4f")
        self._say(
            f"{f'{event.step} of {self._total}':>13}  {loss:>9}  {rate:>12}  {waited / max(seconds, 1e-9):>6.1%}  "
            f"{_number(event.learning_rate, '.3g'):>13}  {_number(event.grad_norm, '.3f'):>9}"
            + ("" if event.mfu is None else f"  MFU {event.mfu:.1%}")
        )

    def _other(self, event: WorkerEvent) -> None:
        if event.kind == "eval":
            accuracy = "" if event.eval_accuracy is None else f", accuracy {event.eval_accuracy:.1%}"
            perplexity = "" if event.eval_perplexity is None else f", perplexity {event.eval_perplexity:.2f}"
            best = ", the best so far" if event.best else ""
            figures = f"loss {_number(event.eval_loss, '.4f')}{accuracy}{perplexity}"
            self._say(f"  held-out after step {event.step}: {figures}{best}")
        elif event.kind == "checkpoint":
            size, seconds = (event.size_bytes or 0) / 1e6, event.seconds or 0
            self._say(f"  checkpoint of step {event.step} ({event.reason}): {size:.1f} MB in {seconds:.2f} s")
        elif event.kind == "fallback":
            self._say(f"  checkpoint of step {event.step} is not usable: {event.message}")
        elif event.kind == "note":
            self._say(f"  note: {event.message}")
        elif event.kind == "stopped":
            saved = "saved; the same command goes on from here" if event.saved else "NOT saved"
            self._say(f"stopped at step {event.step}: {saved}")
        elif event.kind == "finished":
            self._say(
                f"finished: {event.step} steps, {event.epochs:.2f} epochs; mean loss of the first tenth "
                f"{_number(event.first_loss, '.4f')}, of the last {_number(event.last_loss, '.4f')}"
            )
            self._say(f"weights: {self._run_dir / 'checkpoints'}")

    def _say(self, line: str) -> None:
        print(line, flush=True)


def _number(value: float | None, spec: str) -> str:
    return "-" if value is None else format(value, spec)
