"""Reading samples by number from the memory-mapped shards of one split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from ..contracts.manifests import DatasetManifest
from .manifest import map_array
from .order import GlobalOrder


class Batch(NamedTuple):
    images: torch.Tensor  # uint8 [n, c, h, w]
    labels: torch.Tensor  # int64 [n]
    numbers: torch.Tensor  # int64 [n]: which samples of the split these are, told by whoever read them


@dataclass(frozen=True)
class DatasetInfo:
    """What a model factory is told about the data."""

    name: str
    version: str
    classes: int
    sample_shape: tuple[int, ...]  # (channels, height, width)
    train_samples: int
    test_samples: int


def dataset_info(manifest: DatasetManifest) -> DatasetInfo:
    def count(split: str) -> int:
        return sum(shard.samples for shard in manifest.shards if shard.split == split)

    return DatasetInfo(
        name=manifest.name,
        version=manifest.version,
        classes=manifest.classes or 1,
        sample_shape=tuple(manifest.sample_shape),
        train_samples=count("train"),
        test_samples=count("test"),
    )


class ShardedSplit(Dataset[Batch]):
    """All samples of one split, numbered through its shards in manifest order; read when used, not before.

    The index is a numpy array: lists of Python objects would be copied page by page into every worker.
    """

    def __init__(self, folder: str | Path, manifest: DatasetManifest, split: str) -> None:
        shards = [shard for shard in manifest.shards if shard.split == split]
        self._paths = [Path(folder) / shard.name for shard in shards]
        self._ends = np.cumsum([shard.samples for shard in shards], dtype=np.int64)
        self._maps: dict[int, tuple[Any, Any]] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Batch:
        return self.take(np.array([index]))

    def __getitems__(self, indices: list[int]) -> Batch:
        """The loader's way to ask for a whole batch at once."""
        return self.take(np.asarray(indices, dtype=np.int64))

    def take(self, indices: np.ndarray[Any, np.dtype[np.int64]]) -> Batch:
        """The samples of the given numbers, in that order."""
        shard_of = np.searchsorted(self._ends, indices, side="right")
        images: list[Any] = [None] * len(indices)
        labels = np.empty(len(indices), dtype=np.int64)
        for place, (shard, index) in enumerate(zip(shard_of.tolist(), indices.tolist(), strict=True)):
            shard_images, shard_labels = self._arrays(shard)
            row = index - (int(self._ends[shard - 1]) if shard else 0)
            images[place], labels[place] = shard_images[row], shard_labels[row]
        return Batch(torch.from_numpy(np.stack(images)), torch.from_numpy(labels), torch.from_numpy(indices))

    def _arrays(self, shard: int) -> tuple[Any, Any]:
        if shard not in self._maps:
            path = self._paths[shard]
            self._maps[shard] = (map_array(path, "images"), map_array(path, "labels"))
        return self._maps[shard]


class StepSampler(Sampler[list[int]]):
    """This rank's micro-batches from step ``first`` to the last step, across epochs, without a seam.

    Every rank yields the same number of micro-batches, computed up front: none can run dry before the others.
    All of a step, whatever the rank, differ by at most one sample.
    """

    def __init__(
        self, order: GlobalOrder, rank: int, world: int, accumulation: int, first: int, total: int
    ) -> None:
        self._order, self._rank, self._world = order, rank, world
        self._accumulation, self._first, self._total = accumulation, first, total

    def __len__(self) -> int:
        return (self._total - self._first) * self._accumulation

    def __iter__(self) -> Iterator[list[int]]:
        for step in range(self._first, self._total):
            batch = self._order.rank_batch(step, self._rank, self._world)
            for micro in np.array_split(batch, self._accumulation):
                yield micro.tolist()


def _ignore_sigterm(_worker: int) -> None:
    """A SIGTERM to the process group is the trainer's to answer; a loader that dies of it breaks the save."""
    import signal

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _whole(batch: Any) -> Batch:
    """`take` has made the batch already."""
    return batch


def step_loader(
    split: ShardedSplit, sampler: Sampler[list[int]], device: torch.device, workers: int
) -> DataLoader[Batch]:
    """Batches in sampler order; ``workers`` 0 reads in this process. Pinned memory on CUDA (not run yet)."""
    return DataLoader(
        split,
        batch_sampler=sampler,
        collate_fn=_whole,
        num_workers=workers,
        generator=torch.Generator(),  # its own: else it draws from the numbers that dropout is made of
        pin_memory=device.type == "cuda",
        worker_init_fn=_ignore_sigterm,
        persistent_workers=False,
    )
