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
    micro_batch: int  # samples that one rank takes through the model at once


def plan_training(training: TrainingConfig, world: int, train_samples: int) -> Plan:
    """Raises ConfigurationError with the arithmetic when the numbers do not go together."""
    batch, accumulation = training.global_batch_size, training.gradient_accumulation
    rest = batch % (world * accumulation)
    if rest:
        raise ConfigurationError(
            f"globalBatchSize {batch} cannot be split evenly over {world} ranks x {accumulation} accumulation "
            f"steps = {world * accumulation}: {batch} / {world * accumulation} leaves {rest}"
        )
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
        total = math.floor((training.epochs or 0) * steps_per_epoch)
    if total == 0:
        raise ConfigurationError(
            f"{training.epochs} epochs of {steps_per_epoch} steps make no whole step; ask for more"
        )
    if training.warmup_steps >= total:
        raise ConfigurationError(
            f"warmupSteps {training.warmup_steps} must be below the {total} steps of the run"
        )
    return Plan(total, steps_per_epoch, batch // (world * accumulation))
