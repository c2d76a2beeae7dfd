"""What the loop has around its steps: starting fresh or resumed, and evaluating."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from ..contracts.manifests import CheckpointManifest
from ..contracts.run import TrainingConfig
from ..data.dataset import DatasetInfo, ShardedSplit
from ..data.order import GlobalOrder
from ..errors import CheckpointError
from ..models.dropout import SampleKeys
from .checkpoint import Checkpoints, UnreadableError
from .evaluate import Evaluation, evaluate
from .events import EventLog
from .init_from import apply_weights
from .parallel import Grid, as_shards, check_parallel, is_divided, make_grid, spread
from .plan import Plan
from .precision import Precision
from .saving import Saver, save
from .schedule import make_optimizer, make_scheduler, with_own_kernels
from .state import TrainState
from .stop import StopRequest
from .world import World

SAVED_BYTES_PER_PARAMETER = 12  # fp32 weight and AdamW's two moments


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
    saver: Saver = field(init=False, default_factory=Saver)

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
    message, note = "fresh start", None
    if text is not None:
        manifest = CheckpointManifest.from_json(text)
        try:
            saved = found[1] if found else job.checkpoints.load(manifest)
            saved = with_own_kernels(saved, state.optimizer)
            divided = is_divided(state.model)
            note = state.restore(spread(saved, state.model, state.optimizer) if divided else saved)
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
        note = f"of initFrom was not taken over: {left_out}" if left_out else None
    if note:
        job.events.write("note", step=state.step, message=note)
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
    optimizer = make_optimizer(job.model, job.training, divided=job.grid.mesh is not None)
    scheduler = make_scheduler(optimizer, job.training, plan.total_steps)
    return TrainState(job.model, optimizer, scheduler, job.precision.scaler(), precision=job.precision.name)


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
