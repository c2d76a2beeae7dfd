"""Loss and accuracy on the held-out split, spread over the ranks; of tokens loss and perplexity."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import Sampler

from ..data.dataset import ShardedSplit, step_loader
from ..models.load import loss_function, targets_that_count
from .feed import as_model_inputs
from .parallel import Grid
from .pipeline import Pipeline
from .precision import Precision
from .world import World

BATCH_SAMPLES = 256  # images
BATCH_TOKENS = 8192  # at least one sequence
LARGEST_LOSS = 100.0  # above it, e to the loss says nothing


@dataclass(frozen=True)
class Evaluation:
    loss: float
    accuracy: float | None  # 0 to 1; none: the model returns no logits [b, classes]
    perplexity: float | None = None  # of tokens: e to the loss; none: images, or a loss too large for it


class _Share(Sampler[list[int]]):
    """Batches of every size-th sample. Shares may differ by one; where ranks meet within the model, all have as many
    batches, of which those past the share are sample 0 and count for nothing."""

    def __init__(self, samples: int, grid: Grid, batch_samples: int) -> None:
        self.mine = np.arange(grid.data_rank, samples, grid.data_size)
        largest = -(-samples // grid.data_size)
        batches = -(-(largest if grid.mesh is not None else len(self.mine)) // batch_samples)
        self._batches = [
            self.mine[first : first + batch_samples].tolist() or [0]
            for first in range(0, batches * batch_samples, batch_samples)
        ]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self._batches)


@torch.no_grad()
def evaluate(
    model: nn.Module,
    split: ShardedSplit,
    classes: int,
    world: World,
    grid: Grid,
    precision: Precision,
    workers: int,
    pipeline: Pipeline | None = None,
) -> Evaluation:
    """``model`` is the bare module, not its DDP wrapper, or a stage of ``pipeline``. The split holds at least one
    sample."""
    of_one = split.take(np.array([0])).targets.numel()
    batch_samples = BATCH_SAMPLES if of_one == 1 else max(1, BATCH_TOKENS // of_one)
    sampler = _Share(len(split), grid, batch_samples)
    left = len(sampler.mine) if grid.tells else 0  # samples that this rank has still to tell of
    loss_of = loss_function(model)
    loss_sum, correct, count, with_logits, tokens = 0.0, 0, 0, True, False
    model.eval()
    try:
        for batch in step_loader(split, sampler, world.device, workers):
            inputs = as_model_inputs(batch.inputs.to(world.device))
            targets = batch.targets.to(world.device)
            targets_here, tokens = targets_that_count(batch.targets), targets.ndim > 1
            with precision.autocast():
                outputs = None if pipeline else model(inputs)
                of_stages = pipeline.evaluate(inputs, targets, batch_samples) if pipeline else None
                if left <= 0:
                    continue
                left -= len(targets)
                loss_sum += (
                    float(loss_of(outputs, targets)) * targets_here if of_stages is None else float(of_stages)
                )
            count += targets_here
            if isinstance(outputs, torch.Tensor) and outputs.shape == (len(targets), classes) and not tokens:
                correct += int((outputs.argmax(dim=1) == targets).sum())
            else:
                with_logits = False
    finally:
        model.train()
    table = world.gather([loss_sum, float(correct), float(count), float(with_logits), float(tokens)])
    total_loss, total_correct, total, _, _ = table.sum(dim=0).tolist()
    loss = total_loss / max(1, total)
    logits_everywhere, of_tokens = bool(table[:, 3].min() > 0), bool(table[:, 4].max() > 0)
    small_enough = of_tokens and math.isfinite(loss) and loss < LARGEST_LOSS
    return Evaluation(
        loss, total_correct / total if logits_everywhere else None, math.exp(loss) if small_enough else None
    )
