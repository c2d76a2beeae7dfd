"""Samples a second out of the same shards: our reader, a plain DataLoader, WebDataset. Each reads one whole epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset
from trainer.contracts.manifests import DatasetManifest
from trainer.data.dataset import StepSampler, make_split, step_loader

BATCH = 256
SHUFFLE_BUFFER = 1000  # WebDataset's own documentation's usual one

Pass = Callable[[], tuple[int, float]]  # samples read, seconds


def ours(shards: Path, manifest: DatasetManifest, workers: int, window_shards: int | None) -> Pass:
    split = make_split(shards, manifest, "train", window_shards)
    order = split.order(BATCH, seed=0)

    def epoch() -> tuple[int, float]:
        sampler = StepSampler(order, 0, 1, 1, 0, order.steps_per_epoch)
        return _timed(batch.inputs for batch in step_loader(split, sampler, torch.device("cpu"), workers))

    return epoch


def plain(shards: Path, workers: int) -> Pass:
    """As a script would: all shards in memory, PyTorch's own shuffling and collating."""
    loaded = [np.load(path) for path in sorted(shards.glob("train-*.npz"))]
    images = torch.from_numpy(np.concatenate([shard["images"] for shard in loaded]))
    labels = torch.from_numpy(np.concatenate([shard["labels"] for shard in loaded]))
    loader = DataLoader(
        TensorDataset(images, labels), batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True
    )
    return lambda: _timed(images for images, _ in loader)


def web(tars: Path, workers: int) -> Pass | None:
    """None: not installed."""
    try:
        import webdataset  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    wds: Any = webdataset
    urls = [str(path) for path in sorted(tars.glob("train-*.tar"))]

    def epoch() -> tuple[int, float]:
        samples: Any = wds.WebDataset(urls, shardshuffle=len(urls), seed=0).shuffle(SHUFFLE_BUFFER)
        batches = samples.decode().to_tuple("npy", "cls").batched(BATCH, partial=False)
        return _timed(images for images, _ in DataLoader(batches, batch_size=None, num_workers=workers))

    return epoch


def _timed(batches: Iterable[Any]) -> tuple[int, float]:
    before, count = time.perf_counter(), 0
    for images in batches:
        count += len(images)
    return count, time.perf_counter() - before
