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
from .formats import KINDS, ImageShard, Kind, TokenShard, open_shard
from .order import GlobalOrder, WindowedOrder


class Batch(NamedTuple):
    inputs: torch.Tensor  # images: uint8 [n, c, h, w]; tokens: int64 [n, sequence_length]
    targets: (
        torch.Tensor
    )  # images: int64 [n]; tokens: int64 [n, sequence_length], each the token after its input
    numbers: torch.Tensor  # int64 [n]: which samples of the split these are, told by whoever read them

    @property
    def images(self) -> torch.Tensor:
        return self.inputs

    @property
    def labels(self) -> torch.Tensor:
        return self.targets

    def __reduce__(self) -> tuple[Any, ...]:
        """From a loader to its trainer as one tensor: each costs a connection of its own, about a millisecond."""
        parts = [tensor.contiguous() for tensor in (self.numbers, self.targets, self.inputs)]
        layout = [(tensor.dtype, tensor.shape) for tensor in parts]
        return _unpack, (torch.cat([tensor.view(-1).view(torch.uint8) for tensor in parts]), layout)


def _unpack(packed: torch.Tensor, layout: list[tuple[torch.dtype, torch.Size]]) -> Batch:
    """Views of ``packed``; the wider elements come first, so that each begins at a multiple of its size."""
    sizes = [shape.numel() * dtype.itemsize for dtype, shape in layout]
    pieces = zip(packed.split(sizes), layout, strict=True)
    numbers, targets, inputs = (piece.view(dtype).view(shape) for piece, (dtype, shape) in pieces)
    return Batch(inputs, targets, numbers)


@dataclass(frozen=True)
class DatasetInfo:
    """What a model factory is told about the data."""

    name: str
    version: str
    classes: int  # different targets that there are: classes of images, the vocabulary of tokens
    sample_shape: tuple[int, ...]  # of one sample's inputs: (channels, height, width) or (sequence_length,)
    train_samples: int
    test_samples: int
    kind: Kind = "images"
    vocabulary: int | None = None  # tokens are 0 .. vocabulary - 1; none: images
    sequence_length: int | None = None  # tokens of one sample's inputs; none: images


def dataset_info(manifest: DatasetManifest) -> DatasetInfo:
    def count(split: str) -> int:
        return sum(shard.samples for shard in manifest.shards if shard.split == split)

    length = manifest.sequence_length
    return DatasetInfo(
        name=manifest.name,
        version=manifest.version,
        classes=manifest.vocabulary or manifest.classes or 1,
        sample_shape=tuple(manifest.sample_shape) if length is None else (length,),
        train_samples=count("train"),
        test_samples=count("test"),
        kind=KINDS[manifest.format],
        vocabulary=manifest.vocabulary,
        sequence_length=length,
    )


class ShardedSplit(Dataset[Batch]):
    """All samples of one split, numbered through its shards in manifest order; read when used, not before.

    The index is a numpy array: lists of Python objects would be copied page by page into every worker.
    """

    def __init__(
        self, folder: str | Path, manifest: DatasetManifest, split: str, window_shards: int | None = None
    ) -> None:
        """``window_shards``: samples are mixed within so many shards at a time; none: all with all."""
        self._folder, self._manifest, self._window_shards = Path(folder), manifest, window_shards
        self._shards = [shard for shard in manifest.shards if shard.split == split]
        self._ends = np.cumsum([shard.samples for shard in self._shards], dtype=np.int64)
        self._open: dict[int, ImageShard | TokenShard] = {}

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def order(self, global_batch: int, seed: int) -> GlobalOrder:
        """In which its samples are read."""
        if self._window_shards is None:
            return GlobalOrder(len(self), global_batch, seed)
        samples = tuple(shard.samples for shard in self._shards)
        return WindowedOrder(len(self), global_batch, seed, samples, self._window_shards)

    def __getitem__(self, index: int) -> Batch:
        return self.take(np.array([index]))

    def __getitems__(self, indices: list[int]) -> Batch:
        """The loader's way to ask for a whole batch at once."""
        return self.take(np.asarray(indices, dtype=np.int64))

    def take(self, indices: np.ndarray[Any, np.dtype[np.int64]]) -> Batch:
        """The samples of the given numbers (0 <= number < len), in that order."""
        shard_of = np.searchsorted(self._ends, indices, side="right")
        order = np.argsort(shard_of, kind="stable")  # each shard is asked once, for all its samples
        shards, firsts = np.unique(shard_of[order], return_index=True)
        inputs: Any = None
        targets: Any = None
        for shard, places in zip(shards.tolist(), np.split(order, firsts[1:]), strict=True):
            rows = indices[places] - (int(self._ends[shard - 1]) if shard else 0)
            some_inputs, some_targets = self._shard(shard).take(rows)
            if inputs is None:
                inputs = np.empty((len(indices), *some_inputs.shape[1:]), some_inputs.dtype)
                targets = np.empty((len(indices), *some_targets.shape[1:]), some_targets.dtype)
            inputs[places], targets[places] = some_inputs, some_targets
        return Batch(torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(indices))

    def _shard(self, shard: int) -> ImageShard | TokenShard:
        if shard not in self._open:
            self._open[shard] = open_shard(self._folder / self._shards[shard].name, self._manifest)
        return self._open[shard]


def make_split(
    folder: str | Path, manifest: DatasetManifest, split: str, window_shards: int | None = None
) -> ShardedSplit:
    """``train`` or ``test`` of a version that lies in ``folder``, images or tokens; an absent one has no sample."""
    return ShardedSplit(folder, manifest, split, window_shards)


class StepSamples(list[int]):
    """The samples of one micro-batch, and the step it is of, which a streamed split fetches ahead by."""

    step: int = 0


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
                samples = StepSamples(micro.tolist())
                samples.step = step
                yield samples


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
