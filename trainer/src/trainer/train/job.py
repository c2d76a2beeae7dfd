"""What the loop has around its steps: starting fresh or resumed, and evaluating."""

from __future__ import annotations

import math
import os
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
from .checkpoint import Checkpoints
from .evaluate import Evaluation, evaluate
from .events import EventLog
from .init_from import apply_weights
from .parallel import Grid, as_shards, check_parallel, make_grid
from .pipeline import Pipeline
from .plan import Plan
from .precision import Precision
from .saved_state import SavedState, UnreadableError
from .saving import Saver, save
from .schedule import make_optimizer, make_scheduler
from .state import TrainState
from .stop import StopRequest
from .world import World, Writers

SAVED_BYTES_PER_PARAMETER = 12  # fp32 weight and AdamW's two moments


@dataclass
class Job:
    """What one rank needs; `trainer.worker` puts it together."""

    training: TrainingConfig
    world: World
    info: DatasetInfo
    train_split: ShardedSplit
    test_split: ShardedSplit
    model: nn.Module  # on the CPU; the training moves what this rank has of it
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
    pipeline: Pipeline | None = field(init=False, default=None)  # that this rank is a stage of
    parameters: int = field(
        init=False
    )  # numbers in them, and shapes of what the state holds, while undivided
    shapes: dict[str, torch.Size] = field(init=False)
    saver: Saver = field(init=False, default_factory=Saver)
    writers: Writers = field(init=False)

    def __post_init__(self) -> None:
        """Raises ConfigurationError where the ranks do not make what the run asks for. Collective."""
        check_parallel(self.training, self.precision.name)
        self.parameters = sum(one.numel() for one in self.model.parameters())
        self.shapes = {name: value.shape for name, value in self.model.state_dict().items()}
        self.grid = make_grid(self.training.parallel, self.world)
        self.writers = self.world.writers(together=self.grid.mesh is not None)

    @property
    def saves(self) -> bool:
        """Has this rank a part in a checkpoint? Where nothing is divided, all ranks have the same, and rank 0 saves."""
        return self.world.rank == 0 or self.writers.group is not None


def start_state(job: Job, plan: Plan, order: GlobalOrder, after: str | None = None) -> TrainState:
    """The state to go on from: the newest usable checkpoint's, or a fresh one. Collective.

    Rank 0 decides which checkpoint it is; the others load that one and no other. ``after``: why the training goes back
    to a checkpoint of its own.
    """
    state = _fresh_state(job, plan)
    world, found, notes = job.world, None, list[str | None]()
    expected_bytes = SAVED_BYTES_PER_PARAMETER * job.parameters
    if job.writers.group is not None:  # each node writes its ranks' part
        expected_bytes = expected_bytes * int(os.environ.get("LOCAL_WORLD_SIZE", world.size)) // world.size

    def restore(saved: SavedState) -> None:
        notes.append(state.restore(saved))

    if world.rank == 0:
        found = job.checkpoints.begin(
            expected_bytes,
            lambda step, why: job.events.write("fallback", step=step, message=why),
            restore,
        )
    elif job.saves and job.writers.leads:
        job.checkpoints.prepare(expected_bytes)
    text: str | None = world.from_rank0(found.to_json() if found else None)
    message, note = "fresh start", None
    if text is not None:
        manifest = CheckpointManifest.from_json(text)
        try:
            if found is None:
                job.checkpoints.load(manifest, restore)
                if job.writers.leads:  # where rank 0 is not, maybe no save ever comes that would make room
                    job.checkpoints.keep_on_disk({manifest.step})
        except UnreadableError as error:
            raise CheckpointError(f"checkpoint of step {manifest.step}: {error}") from error
        note = notes[-1]
        if order.step_at(manifest.samples_consumed) != state.step:
            raise CheckpointError(f"checkpoint of step {manifest.step} names another offset than its state")
        message = (
            f"resumed from step {manifest.step}, saved by generation {manifest.generation} "
            f"with {manifest.world_size} ranks"
        )
        if after:
            message = f"went back to the checkpoint of step {manifest.step} after {after}"
    elif job.weights is not None:
        weights = as_shards(job.weights(), job.model)
        left_out = apply_weights(job.model, weights, job.training.init_strict, job.shapes)
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
    optimizer = make_optimizer(job.model, job.training)
    scheduler = make_scheduler(optimizer, job.training, plan.total_steps)
    return TrainState(
        job.model,
        optimizer,
        scheduler,
        job.precision.scaler(),
        precision=job.precision.name,
        has_all_layers=job.pipeline is None,
    )


def evaluate_and_keep_best(job: Job, state: TrainState, order: GlobalOrder) -> Evaluation | None:
    """Held-out loss; the best so far is saved and pointed at. None: no held-out split. Collective."""
    if len(job.test_split) == 0:
        return None
    began = time.monotonic()
    job.events.write("pause", step=state.step, reason="eval")
    result = evaluate(
        job.model,
        job.test_split,
        job.info.classes,
        job.world,
        job.grid,
        job.precision,
        job.loader_workers,
        job.pipeline,
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
