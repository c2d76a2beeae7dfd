"""Micro-batches on the device, the next one on its way while the present one is computed.

On a GPU a stream of its own copies from pinned memory; no GPU has run it yet. On a CPU the loader's batch is used as
it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch.utils.data import Sampler

from ..data.dataset import Batch, ShardedSplit, step_loader
from ..models.load import targets_that_count


@dataclass(frozen=True)
class MicroBatch:
    inputs: torch.Tensor  # as the dataset has them: images uint8 [b, c, h, w], tokens int64 [b, t]
    targets: torch.Tensor  # int64 [b] or [b, t]
    numbers: torch.Tensor  # int64 [b], which samples these are
    number_sum: int
    count: int  # targets that count for the loss


def as_model_inputs(inputs: torch.Tensor) -> torch.Tensor:
    """Images become float32 in 0..1, tokens stay."""
    return inputs.float() / 255 if inputs.dtype == torch.uint8 else inputs


class Feed:
    def __init__(
        self, split: ShardedSplit, sampler: Sampler[list[int]], device: torch.device, workers: int
    ) -> None:
        self._batches: Iterator[Batch] = iter(step_loader(split, sampler, device, workers))
        self._device = device
        self._copies = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._coming: MicroBatch | None = None
        self._waited = 0.0

    def take(self) -> MicroBatch:
        """Raises StopIteration past the sampler's end."""
        if self._copies is None:
            return self._next()
        now = self._coming or self._next()
        stream = torch.cuda.current_stream(self._device)
        stream.wait_stream(self._copies)
        for tensor in (now.inputs, now.targets, now.numbers):
            tensor.record_stream(stream)  # its memory is not given to a later copy before the model is done
        try:
            self._coming = self._next()
        except StopIteration:
            self._coming = None
        return now

    def waited(self) -> float:
        """Seconds that the loader kept us waiting since the last call."""
        seconds, self._waited = self._waited, 0.0
        return seconds

    def _next(self) -> MicroBatch:
        asked = time.monotonic()
        batch = next(self._batches)
        self._waited += time.monotonic() - asked
        number_sum, count = int(batch.numbers.sum()), targets_that_count(batch.targets)
        inputs, targets, numbers = batch
        if self._copies is not None:
            with torch.cuda.stream(self._copies):
                inputs, targets, numbers = (one.to(self._device, non_blocking=True) for one in batch)
        return MicroBatch(inputs, targets, numbers, number_sum, count)
