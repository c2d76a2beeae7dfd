"""What the loop has around its steps: starting fresh or resumed, evaluating, saving."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import torch
from torch import nn

from ..contracts.manifests import CheckpointManifest
from ..contracts.run import TrainingConfig
from ..data.dataset import DatasetInfo, ShardedSplit
from ..data.order import GlobalOrder
from ..errors import CheckpointError, Fault, FencedError, StoreError
from ..exit_codes import Exit
from ..models.dropout import SampleKeys
from .checkpoint import Checkpoints, UnreadableError
from .deadline import within
from .evaluate import Evaluation, evaluate
from .events import EventLog
from .init_from import apply_weights
from .parallel import Grid, as_shards, check_parallel, is_divided, make_grid, spread, whole
from .plan import Plan
from .precision import Precision
from .schedule import make_optimizer, make_scheduler
from .state import TrainState
from .stop import StopRequest, reason_of
from .world import World

SAVED_BYTES_PER_PARAMETER = 12  # fp32 weight and AdamW's two moments
# Of the chain of a stop (systemd 110, agent 100, torchrun 90) the shortest: what is not saved by then never will be.
STOP_SAVE_SECONDS = 60
_log = logging.getLogger(__name__)


@dataclass
class Job:
    """What one rank needs; `trainer.worker` puts it together."""

    training: TrainingConfig
    world: World
    info: DatasetInfo
    train_split: ShardedSplit
    test_split: ShardedSplit
    model: nn.Module  # on the world's device
    dropout: SampleKeys  # of the model's dropout modules
    precision: Precision
    checkpoints: Checkpoints
    stop: StopRequest
    events: EventLog
    loader_workers: int = 0
    whole_world: int | None = None  # ranks when no node is missing; none: as many as there are
    weights: Callable[[], dict[str, torch.Tensor]] | None = (
        None  # that a fresh start begins with; none: as built
    )

    grid: Grid = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigurationError where the ranks do not make what the run asks for. Collective."""
        check_parallel(self.training)
        self.grid = make_grid(self.training.parallel, self.world)


def start_state(job: Job, plan: Plan, order: GlobalOrder, after: str | None = None) -> TrainState:
    """The state to go on from: the newest usable checkpoint's, or a fresh one. Collective.

    Rank 0 decides which checkpoint it is; the others load that one and no other. ``after``: why the training goes back
    to a checkpoint of its own.
    """
    state = _fresh_state(job, plan)
    world, found = job.world, None
    if world.rank == 0:
        parameters = sum(parameter.numel() for parameter in job.model.parameters())
        found = job.checkpoints.begin(
            parameters * SAVED_BYTES_PER_PARAMETER,
            lambda step, why: job.events.write("fallback", step=step, message=why),
        )
    text: str | None = world.from_rank0(found[0].to_json() if found else None)
    message = "fresh start"
    if text is not None:
        manifest = CheckpointManifest.from_json(text)
        try:
            saved = found[1] if found else job.checkpoints.load(manifest)
            state.restore(spread(saved, state.model, state.optimizer) if is_divided(state.model) else saved)
        except (UnreadableError, RuntimeError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"checkpoint of step {manifest.step} does not fit the model: {' '.join(str(error).split())}"
            ) from error
        if order.step_at(manifest.samples_consumed) != state.step:
            raise CheckpointError(f"checkpoint of step {manifest.step} names another offset than its state")
        message = (
            f"resumed from step {manifest.step}, saved by generation {manifest.generation} "
            f"with {manifest.world_size} ranks"
        )
        if after:
            message = f"went back to the checkpoint of step {manifest.step} after {after}"
    elif job.weights is not None:
        left_out = apply_weights(job.model, as_shards(job.weights(), job.model), job.training.init_strict)
        message = f"fresh start with the weights of {job.training.init_from}"
        if left_out:
            job.events.write("note", step=0, message=f"of initFrom was not taken over: {left_out}")
    job.events.write(
        "started",
        step=state.step,
        samples=state.step * order.global_batch,
        world_size=world.size,
        total_steps=plan.total_steps,
        message=message,
    )
    return state


def _fresh_state(job: Job, plan: Plan) -> TrainState:
    optimizer = make_optimizer(job.model, job.training, mixed=job.grid.tensor_size > 1)
    scheduler = make_scheduler(optimizer, job.training, plan.total_steps)
    return TrainState(job.model, optimizer, scheduler, job.precision.scaler())


def evaluate_and_keep_best(job: Job, state: TrainState, order: GlobalOrder) -> Evaluation | None:
    """Held-out loss; the best so far is saved and pointed at. None: no held-out split. Collective."""
    if len(job.test_split) == 0:
        return None
    began = time.monotonic()
    job.events.write("pause", step=state.step, reason="eval")
    result = evaluate(
        job.model, job.test_split, job.info.classes, job.world, job.grid, job.precision, job.loader_workers
    )
    best = math.isfinite(result.loss) and (state.best_eval_loss is None or result.loss < state.best_eval_loss)
    if job.world.rank == 0:
        job.events.write(
            "eval",
            step=state.step,
            eval_loss=result.loss,
            eval_accuracy=result.accuracy,
            **({} if result.perplexity is None else {"eval_perplexity": result.perplexity}),
            seconds=time.monotonic() - began,
            best=best,
        )
    state.evaluated_step = state.step
    if best:
        state.best_eval_loss = result.loss
        save(job, state, order, "best")
    return result


def save(
    job: Job, state: TrainState, order: GlobalOrder, reason: str, limit_seconds: float | None = None
) -> None:
    """Rank 0 saves, the others wait for it on the control group. Collective.

    A fault on rank 0 ends it with that fault's exit code, and the others with PEER_LOST. With a limit, rank 0
    raises StoreError once it is over.
    """
    began = time.monotonic()
    job.events.write("pause", step=state.step, reason="save")
    captured = None
    if is_divided(state.model):  # all ranks give their shards
        captured = whole(state.capture(), keep=job.world.rank == 0)
    if job.world.rank == 0:
        is_new = job.checkpoints.newest_step != state.step
        work = partial(
            job.checkpoints.save,
            state.step,
            state.step * order.global_batch,
            order.epochs_at(state.step),
            captured or state.capture(),
        )
        try:
            manifest = work() if limit_seconds is None else within(limit_seconds, work)
        except TimeoutError as error:
            raise StoreError(f"the checkpoint of step {state.step} was {error}") from error
        if reason == "best" and state.best_eval_loss is not None:
            job.checkpoints.mark_best(manifest, state.best_eval_loss)
        if is_new:
            job.events.write(
                "checkpoint",
                step=state.step,
                seconds=time.monotonic() - began,
                size_bytes=manifest.files[0].size_bytes,
                sha256=manifest.files[0].sha256,
                reason=reason,
            )
    job.world.wait()


def save_and_stop(
    job: Job, state: TrainState, order: GlobalOrder, stop_weight: int
) -> Literal[Exit.STOPPED_SAVED, Exit.STOPPED_STALE]:
    """Every rank stops at this step; a failed save is only told where an older one is there. Collective.

    A save that is still under way when its time is over is left to itself. It does no harm: cut off anywhere, it
    leaves the older checkpoint the newest; coming to its end late, it leaves a complete one of this very step, or
    is refused (fenced) where a newer generation has begun.
    """
    reason = reason_of(stop_weight)
    saved = True
    try:
        save(job, state, order, reason, STOP_SAVE_SECONDS)
    except FencedError:
        raise
    except Fault as fault:
        if job.checkpoints.newest_step is None:
            raise
        saved = False
        _log.error("step %d could not be saved: %s", state.step, fault)
        job.events.write("error", code=int(fault.exit_code), message=str(fault))
        job.world.wait()
    saved = bool(job.world.from_rank0(saved))
    job.events.write("stopped", step=state.step, reason=reason, saved=saved)
    return Exit.STOPPED_SAVED if saved else Exit.STOPPED_STALE
