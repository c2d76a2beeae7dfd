"""How fast samples come out of a dataset folder, and how long a training of a given pace would wait for them.

The very feed of training reads them, in a training's order: nothing is faster here than there. What is in the page
cache already is read from there, as in a training's second epoch.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from ..contracts.manifests import DatasetManifest
from ..errors import DatasetError

SEED = 0
LEAST_BATCHES = 5


@dataclass(frozen=True)
class LoaderMeasured:
    batch_size: int
    workers: int
    batches: int
    seconds: float  # of all batches
    waited_seconds: float  # part of it
    sample_bytes: int

    @property
    def samples_per_second(self) -> float:
        return self.batches * self.batch_size / self.seconds

    @property
    def wait_ratio(self) -> float:
        return self.waited_seconds / self.seconds


def measure_loader(
    folder: Path,
    manifest: DatasetManifest,
    batch_size: int,
    workers: int,
    device: str,
    budget_seconds: float,
    step_seconds: float = 0.0,
) -> LoaderMeasured:
    """Batches of the training split until the budget is used; ``step_seconds``: what a step would compute meanwhile.

    Raises DatasetError where the folder holds fewer samples than one batch.
    """
    import torch

    from ..data.dataset import StepSampler, make_split
    from ..data.order import GlobalOrder
    from ..train.feed import Feed

    split = make_split(folder, manifest, "train")
    order = GlobalOrder(len(split), batch_size, SEED)
    if order.steps_per_epoch == 0:
        raise DatasetError(
            f"{folder}: {len(split)} training samples make no batch of {batch_size}; use --batch-size"
        )
    sampler = StepSampler(order, rank=0, world=1, accumulation=1, first=0, total=10**9)
    feed = Feed(split, sampler, torch.device(device), workers)
    first = feed.take()  # opens the shards and starts the workers
    feed.waited()
    batches, waited = 0, 0.0
    began = time.monotonic()
    while batches < LEAST_BATCHES or time.monotonic() - began < budget_seconds:
        feed.take()
        waited += feed.waited()
        batches += 1
        time.sleep(step_seconds)
    seconds = time.monotonic() - began
    sample_bytes = first.inputs[0].numel() * first.inputs.element_size()
    return LoaderMeasured(batch_size, workers, batches, seconds, waited, sample_bytes)
