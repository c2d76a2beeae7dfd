"""What the agent hands to its workers and what it reads back from them: files in the generation's folder.

``<state-dir>/runs/<run>/gen-<n>/`` (`generation_dir`; n with four digits) holds::

    worker.json            WorkerConfig, written by the agent, read by every rank of this node
    stop                   written by the agent: all ranks stop at one step, save, exit; its text is why
    save                   written by the agent: all ranks save at the next step and go on
    events-rank<r>.jsonl   WorkerEvent lines, appended by global rank r (eval, checkpoint: rank 0 only)
    exit-rank<r>.json      ExitReport, written by global rank r before it exits (torchrun only tells 0 or 1)
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from .base import Document
from .node_document import NodeDocument
from .run import Generation, RunConfig

STOP_FILE = "stop"
SAVE_FILE = "save"
WORKER_FILE = "worker.json"

# regroup: the world grows; limit: the run has trained as long as it may
StopReason = Literal["notice", "user", "sigterm", "regroup", "limit"]
EventKind = Literal[
    "started",
    "fallback",
    "note",
    "step",
    "pause",
    "eval",
    "checkpoint",
    "straggler",
    "stopped",
    "finished",
    "error",
]


class WorkerConfig(Document):
    run: RunConfig
    generation: Generation
    node_rank: int = Field(ge=0)  # place of this node in generation.members
    document: NodeDocument
    state_dir: str  # the agent's state folder; local checkpoints and user packages go below it
    data_dir: str  # synced datasets: <data_dir>/<name>/<version>/{manifest.json,shards...}
    device: Literal["cuda", "cpu"]


class WorkerEvent(Document):
    """One line of ``events-rank<r>.jsonl``. Which fields a kind carries:

    started     step and samples to go on from (0 at a fresh start), world_size, total_steps, message
    fallback    step of a checkpoint that was not usable, message (why)
    note        message: what the training does otherwise than one might expect; step where it applies
    step        step (counted from 1), loss (mean over the global batch; null and non_finite if no number),
                skipped (true: no weight was changed, for the loss or the gradient is no number or fp16 overflowed),
                samples (consumed by all ranks since the run's first step), seconds (the whole step),
                data_wait_seconds (part of it spent waiting for data; largest of all ranks), learning_rate,
                sample_sum (sum of the numbers of all samples of the step, over all ranks); where they apply:
                tokens (as samples, of sequence models), grad_norm (of the whole gradient, before clipping),
                mfu (ratio; null or left out where the device's peak is not known), device_peak_bytes (most device
                memory that torch had allocated on this rank since the start)
    pause       step, reason (save, eval): no step for a while, and that is no hang; written by every rank
    eval        step, eval_loss, eval_accuracy (0 to 1; null where the model returns no logits [b, classes]), of tokens
                eval_perplexity, seconds, best
    checkpoint  step, seconds (from the step's end to the moved pointer), stopped_seconds (part of it in which the loop
                stood still; told beside later steps, whose numbers may be higher), size_bytes (of all files), sha256
                (of the manifest), reason (periodic, requested, best, final, or the reason of a stop)
    straggler   step, slow_rank, ratio (its own work per step to the median of all ranks); rank 0 only
    stopped     step, reason, saved (false: the save failed; a resume will find an older checkpoint)
    finished    step, epochs, first_loss and last_loss (mean of the first and last tenth of all the run's
                steps, whatever generation made them), eval_loss, eval_accuracy
    error       code (exit code), message
    """

    kind: EventKind
    time: float  # seconds since the epoch
    step: int | None = None
    loss: float | None = None
    non_finite: bool | None = None
    skipped: bool | None = None
    samples: int | None = None
    seconds: float | None = None
    data_wait_seconds: float | None = None
    learning_rate: float | None = None
    sample_sum: int | None = None
    tokens: int | None = None
    grad_norm: float | None = None
    mfu: float | None = None
    device_peak_bytes: int | None = None
    slow_rank: int | None = None
    ratio: float | None = None
    world_size: int | None = None
    total_steps: int | None = None
    epochs: float | None = None
    first_loss: float | None = None
    last_loss: float | None = None
    eval_loss: float | None = None
    eval_accuracy: float | None = None
    eval_perplexity: float | None = None
    best: bool | None = None
    stopped_seconds: float | None = None
    size_bytes: int | None = None
    sha256: str | None = None
    reason: str | None = None
    saved: bool | None = None
    code: int | None = None
    message: str | None = None

    def to_line(self) -> str:
        """JSON with the fields that were given (a given None is null), ending in a newline."""
        return self.model_dump_json(by_alias=True, exclude_unset=True) + "\n"


class ExitReport(Document):
    """How one rank ended. ``code`` is one of trainer.exit_codes.Exit; ``message`` is one line for people."""

    code: int
    message: str
    step: int | None = None  # the last step this rank finished


def generation_dir(state_dir: str | Path, run: str, generation: int) -> Path:
    return Path(state_dir) / "runs" / run / f"gen-{generation:04d}"


def events_file(gen_dir: str | Path, rank: int) -> Path:
    return Path(gen_dir) / f"events-rank{rank}.jsonl"


def exit_file(gen_dir: str | Path, rank: int) -> Path:
    return Path(gen_dir) / f"exit-rank{rank}.json"
