"""What the leader tells when a run is over: one message on the stack's runs topic."""

from __future__ import annotations

from typing import Literal

from .base import Document
from .cost import RunCost


class RunEvent(Document):
    """The message's default body, for programs; people who subscribed by mail get it as text."""

    schema_version: int = 1
    stack: str
    region: str
    run: str
    groups: list[str]
    status: Literal["finished", "failed", "stopped"]
    reason: str
    exit_code: int
    exit_name: str
    step: int
    total_steps: int | None = None
    loss: float | None = None  # mean training loss of the last tenth of the steps
    eval_loss: float | None = None
    eval_accuracy: float | None = None
    checkpoint: str | None = None  # s3:// folder of the last complete one
    cost: RunCost | None = None
    finished_at: str
    fetch: str  # the command that downloads the checkpoint
    resume: str | None = None  # the command that goes on; None: the run finished
