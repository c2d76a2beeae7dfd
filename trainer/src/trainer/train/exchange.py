"""What the ranks tell each other once a step, in one collective, before the weights change."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass
from typing import Literal

import torch

from .world import World

SAVE_REASONS: tuple[Literal["periodic", "requested"], ...] = ("periodic", "requested")


@dataclass(frozen=True)
class RankWords:
    """One rank's. Sums of whole numbers stay exact: they travel as float64, which has all below 2**53."""

    loss_sum: float  # over its targets
    count: int  # of its targets that the loss is the mean of
    sample_sum: int  # of the numbers of the samples that it loaded
    waited_seconds: float  # for data
    busy_seconds: float  # its own work, waiting for no other rank
    stop_weight: int  # `stop.StopRequest.weight`
    save_weight: int  # 0, or 1 + the place of the reason in SAVE_REASONS
    is_saving: int  # 1 while a save of this rank's is under way


@dataclass(frozen=True)
class WorldWords:
    """The same on every rank, so that all decide the same."""

    loss_sums: list[float]  # by rank
    counts: list[int]  # targets that count, by rank; 0 on a rank that sees the samples of another
    sample_sum: int
    waited_seconds: float  # of the rank that waited longest
    busy_seconds: list[float]  # by rank
    stop_weight: int
    save_weight: int
    is_saving: bool

    @property
    def count(self) -> int:
        """Targets of the global batch that count."""
        return sum(self.counts)

    @property
    def mean_loss(self) -> float:
        """Over the targets of the global batch, wherever they were."""
        told = [loss for loss, count in zip(self.loss_sums, self.counts, strict=True) if count]
        return sum(told) / max(1, self.count) if not self.ranks_without_a_number else math.nan

    @property
    def ranks_without_a_number(self) -> list[int]:
        return [rank for rank, loss in enumerate(self.loss_sums) if not math.isfinite(loss)]


def exchange(world: World, mine: RankWords) -> WorldWords:
    table: torch.Tensor = world.gather([float(word) for word in astuple(mine)])
    loss_sums, count, sample_sum, waited, busy, stop, save, saving = table.unbind(dim=1)
    return WorldWords(
        loss_sums=loss_sums.tolist(),
        counts=[int(one) for one in count.tolist()],
        sample_sum=int(sample_sum.sum()),
        waited_seconds=float(waited.max()),
        busy_seconds=busy.tolist(),
        stop_weight=int(stop.max()),
        save_weight=int(save.max()),
        is_saving=bool(saving.any()),
    )
