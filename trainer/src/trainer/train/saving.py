"""Saves beside the training: at most one at a time, in a thread of each rank that has a part of the state (of plain
data parallelism rank 0 alone), and when the training waits for one.

A periodic, requested or best save copies the state into host memory while the next step goes forward and backward,
which changes no weights (CheckFreq, FAST'21); only that step's update waits until the copy is there. The rest
(writing, hashing, uploading, publishing) goes on beside further steps, and no rank waits for it. The save of a stop
and the last one wait: first for the one under way, then for their own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal

import torch

from ..data.order import GlobalOrder
from ..errors import Fault, FencedError, StoreError
from ..exit_codes import Exit
from .lineage import manifest_sha256
from .snapshot import HostCopy
from .state import WEIGHTS, Part, TrainState
from .stop import reason_of

if TYPE_CHECKING:
    from .job import Job

# Of the chain of a stop (systemd 110, agent 100, torchrun 90) the shortest: what is not saved by then never will be.
STOP_SAVE_SECONDS = 60
_log = logging.getLogger(__name__)


class Saver:
    """One save at a time. What it fails with is raised by the next call here, once, on the loop's own thread."""

    def __init__(self) -> None:
        self.room = HostCopy()
        self.step: int | None = None  # of the save under way, or of the last one
        self.stopped_seconds = 0.0  # that the loop stood still for it
        self._copied = threading.Event()  # or given up
        self._copied.set()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def check(self) -> bool:
        """Is a save under way? Raises what the last one failed with."""
        if self._thread is not None and self._thread.is_alive():
            return True
        self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return False

    def wait(self, seconds: float | None = None) -> None:
        """Until no save is under way. Raises what it failed with; TimeoutError once it takes longer than ``seconds``.

        It then goes on in its thread, which ends with the process at the latest. It does no harm: cut off anywhere, it
        leaves the older checkpoint the newest; coming to its end late, it leaves a complete one of its very step, or
        is refused (fenced) where a newer generation has begun.
        """
        if self._thread is not None:
            self._thread.join(seconds)
        if self.check():
            raise TimeoutError(f"the checkpoint of step {self.step} is not done")

    def let_copy(self) -> None:
        """Before weights change: until the state is copied that a save under way was begun with."""
        if not self._copied.is_set():
            began = time.monotonic()
            self._copied.wait()
            self.stopped_seconds += time.monotonic() - began

    def begin(self, step: int, part: Callable[[], Part], work: Callable[[Part], object]) -> None:
        """``work`` on what ``part`` gives, in a thread; `let_copy` waits for the latter. Nothing may be under way."""
        if self.check():
            raise RuntimeError(f"the save of step {self.step} is still under way")
        self.step = step
        self._copied.clear()
        # A thread begins on GPU 0: what DCP copies from another one it would wait for there, and write too early.
        gpu = torch.cuda.current_device() if torch.cuda.is_initialized() else None

        def run() -> None:
            try:
                if gpu is not None:
                    torch.cuda.set_device(gpu)
                given = part()
                self._copied.set()
                work(given)
            except BaseException as error:
                self._error = error
            finally:
                self._copied.set()

        self._thread = threading.Thread(target=run, daemon=True, name=f"save-{step}")
        self._thread.start()


def save(job: Job, state: TrainState, order: GlobalOrder, reason: str) -> None:
    """Save a copy of the state beside the training. Collective.

    The best one waits for one that is under way; the others are asked for only when there is none. A fault ends the
    ranks that save at their next step's end with that fault's exit code, and the others with PEER_LOST.
    """
    began = time.monotonic()
    if reason == "best":
        job.events.write("pause", step=state.step, reason="save")
        job.saver.wait()
        job.world.wait()  # on the control group, which is patient, and not in a step's collective
    if job.saves:
        part = state.capture()
        # A forward pass changes what is no parameter: statistics of BatchNorm.
        parameters = {WEIGHTS + name for name, _ in state.model.named_parameters(remove_duplicate=False)}
        changing = {
            name: value.clone()
            for name, value in part.values.items()
            if name.startswith(WEIGHTS) and name not in parameters
        }
        part = replace(part, values=part.values | changing)
        there = None
        if job.world.device.type == "cuda":
            there = torch.cuda.Event()
            there.record()
        work = partial(_work, job, state.step, order, reason, state.best_eval_loss, began)
        job.saver.stopped_seconds = time.monotonic() - began
        job.saver.begin(state.step, partial(job.saver.room.take, part, there), work)


def save_and_wait(
    job: Job, state: TrainState, order: GlobalOrder, reason: str, limit_seconds: float | None = None
) -> None:
    """The same, and every rank waits until it is done. Collective.

    The state is saved as it lies: nothing changes it meanwhile, nor afterwards. With a limit, rank 0 raises StoreError
    once it is over.
    """
    began = time.monotonic()
    job.events.write("pause", step=state.step, reason="save")
    if job.saves:
        part = state.capture()
        work = partial(_work, job, state.step, order, reason, state.best_eval_loss, began, waited_for=True)
        try:
            _finish_older(job, limit_seconds)
            job.saver.begin(state.step, lambda: part, work)
            left = None if limit_seconds is None else limit_seconds - (time.monotonic() - began)
            job.saver.wait(left if left is None else max(0.0, left))
        except TimeoutError as error:
            if job.world.rank == 0:  # which decides for all
                raise StoreError(
                    f"the checkpoint of step {job.saver.step} was not done within {limit_seconds:g} s"
                ) from error
    job.world.wait()


def _finish_older(job: Job, seconds: float | None) -> None:
    """What the save under way failed with is told alone, since a newer one follows; unless this writer is fenced."""
    try:
        job.saver.wait(seconds)
    except FencedError:
        raise
    except Fault as fault:
        _tell(job, f"the save of step {job.saver.step} failed", fault)


def save_and_stop(
    job: Job, state: TrainState, order: GlobalOrder, stop_weight: int
) -> Literal[Exit.STOPPED_SAVED, Exit.STOPPED_STALE]:
    """Every rank stops at this step; a failed save is only told where an older one is there. Collective."""
    reason = reason_of(stop_weight)
    saved = True
    try:
        save_and_wait(job, state, order, reason, STOP_SAVE_SECONDS)
    except FencedError:
        raise
    except Fault as fault:
        if job.checkpoints.newest_step is None:
            raise
        saved = False
        _tell(job, f"step {state.step} could not be saved", fault)
        job.world.wait()
    saved = bool(job.world.from_rank0(saved))
    job.events.write("stopped", step=state.step, reason=reason, saved=saved)
    return Exit.STOPPED_SAVED if saved else Exit.STOPPED_STALE


def _work(
    job: Job,
    step: int,
    order: GlobalOrder,
    reason: str,
    best_eval_loss: float | None,
    began: float,
    part: Part,
    waited_for: bool = False,
) -> None:
    """The part of a save that no step waits for, unless it is ``waited_for``."""
    is_new = job.checkpoints.newest_step != step
    manifest = job.checkpoints.save(step, step * order.global_batch, order.epochs_at(step), part, job.writers)
    if job.world.rank != 0:
        return
    if reason == "best" and best_eval_loss is not None:
        job.checkpoints.mark_best(manifest, best_eval_loss)
    if is_new:
        seconds = time.monotonic() - began
        job.events.write(
            "checkpoint",
            step=step,
            seconds=seconds,
            stopped_seconds=seconds if waited_for else job.saver.stopped_seconds,
            size_bytes=sum(file.size_bytes for file in manifest.files),
            sha256=manifest_sha256(manifest),
            reason=reason,
        )


def _tell(job: Job, what: str, fault: Fault) -> None:
    _log.error("%s: %s", what, fault)
    job.events.write("error", code=int(fault.exit_code), message=str(fault))
