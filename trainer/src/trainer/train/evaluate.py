"""Loss and accuracy on the held-out split, spread over the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import nn
from torch.utils.data import BatchSampler, Sampler

from ..data.dataset import ShardedSplit, step_loader
from ..models.load import loss_function
from .precision import Precision
from .world import World

BATCH_SAMPLES = 256


@dataclass(frozen=True)
class Evaluation:
    loss: float
    accuracy: float | None  # 0 to 1; none: the model returns no logits [b, classes]


class _Share(Sampler[int]):
    """Every world-th sample. Shares may differ by one: no gradients flow, so nobody waits for anybody."""

    def __init__(self, samples: int, rank: int, world: int) -> None:
        self._mine = np.arange(rank, samples, world)

    def __len__(self) -> int:
        return len(self._mine)

    def __iter__(self):
        return iter(self._mine.tolist())


@torch.no_grad()
def evaluate(
    model: nn.Module, split: ShardedSplit, classes: int, world: World, precision: Precision, workers: int
) -> Evaluation:
    """``model`` is the bare module, not its DDP wrapper. The split holds at least one sample."""
    sampler = BatchSampler(_Share(len(split), world.rank, world.size), BATCH_SAMPLES, drop_last=False)
    loss_of = loss_function(model)
    loss_sum, correct, count, with_logits = 0.0, 0, 0, True
    model.eval()
    try:
        for images, labels, _ in step_loader(split, sampler, world.device, workers):
            images, targets = images.to(world.device).float() / 255, labels.to(world.device)
            with precision.autocast():
                outputs = model(images)
                loss_sum += float(loss_of(outputs, targets)) * len(targets)
            count += len(targets)
            if isinstance(outputs, torch.Tensor) and outputs.shape == (len(targets), classes):
                correct += int((outputs.argmax(dim=1) == targets).sum())
            else:
                with_logits = False
    finally:
        model.train()
    table = world.gather([loss_sum, float(correct), float(count), float(with_logits)])
    total_loss, total_correct, total, _ = table.sum(dim=0).tolist()
    logits_everywhere = bool(table[:, 3].min() > 0)
    return Evaluation(total_loss / total, total_correct / total if logits_everywhere else None)
