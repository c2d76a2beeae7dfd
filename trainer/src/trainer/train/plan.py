"""How many steps of which size: computed before the first one, equal on every rank."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..contracts.run import TrainingConfig
from ..errors import ConfigurationError


@dataclass(frozen=True)
class Plan:
    total_steps: int
    steps_per_epoch: int
    accumulation: int  # micro-batches that each rank takes through the model a step


def plan_training(
    training: TrainingConfig, world: int, train_samples: int, whole_world: int | None = None
) -> Plan:
    """Any world trains that leaves no micro-batch without a sample: shares differ by one where they must.

    ``whole_world``: ranks of the run's whole world (none: ``world``), which gradientAccumulation is meant for.
    A smaller world accumulates more, so that no micro-batch outgrows what fits the devices of the whole one.
    Raises ConfigurationError with the arithmetic when the numbers do not go together.
    """
    batch, accumulation = training.global_batch_size, training.gradient_accumulation
    whole = max(world, whole_world or world)
    if whole * accumulation > batch:
        raise ConfigurationError(
            f"globalBatchSize {batch} is too small for {whole} ranks x {accumulation} accumulation steps = "
            f"{whole * accumulation} micro-batches of at least one sample: raise it or accumulate less"
        )
    largest_micro_batch = _ceil(_ceil(batch, whole), accumulation)
    needed = _ceil(_ceil(batch, world), largest_micro_batch)
    accumulation = max(accumulation, min(needed, batch // world))
    steps_per_epoch = train_samples // batch
    if steps_per_epoch == 0:
        raise ConfigurationError(
            f"globalBatchSize {batch} is more than the {train_samples} training samples: no step fits"
        )
    if (training.steps is None) == (training.epochs is None):
        raise ConfigurationError("training needs exactly one of steps and epochs")
    if training.steps is not None:
        total = training.steps
    else:
        # 0.29 x 100 is 28.999999999999996: not a step less for that.
        total = math.floor((training.epochs or 0) * steps_per_epoch + 1e-6)
    if total == 0:
        raise ConfigurationError(
            f"{training.epochs} epochs of {steps_per_epoch} steps make no whole step; ask for more"
        )
    if training.warmup_steps >= total:
        raise ConfigurationError(
            f"warmupSteps {training.warmup_steps} must be below the {total} steps of the run"
        )
    return Plan(total, steps_per_epoch, accumulation)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)
