"""Which sample is read when: a pure function of seed, epoch and place, the same for every world size.

An epoch is a permutation of all training samples, made by a keyed Feistel network over the sample numbers,
so that any place of it is computed directly: no table to keep, nothing to replay at a resume, and no
dependence on a library's random stream, which may change between versions. Step s of a run reads the next
``global_batch`` places; sample i of the step goes to rank i mod world, so that the ranks' shares differ by at
most one sample. The tail of an epoch that fills no batch is left out, and is another one in each epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

ROUNDS = 8
_MASK = 0xFFFFFFFFFFFFFFFF


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return cast("NDArray[np.uint64]", values ^ (values >> np.uint64(31)))


def _round_keys(seed: int, epoch: int) -> NDArray[np.uint64]:
    start = np.array([(seed * 0x9E3779B97F4A7C15 + epoch * 0xD1B54A32D192ED03) & _MASK], dtype=np.uint64)
    steps = np.arange(1, ROUNDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return _mix(_mix(start) + steps)


def permuted(places: Index, samples: int, seed: int, epoch: int) -> Index:
    """The samples at the given places (0 <= place < samples) of the epoch's permutation; same shape."""
    half_bits = max(1, ((samples - 1).bit_length() + 1) // 2)
    half, low = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    keys = _round_keys(seed, epoch)
    values = places.astype(np.uint64)
    # The network permutes 0 .. 4**half_bits - 1, fewer than four times the samples (or 0 .. 3): whoever lands
    # outside walks on until inside, which keeps it a permutation.
    outside = np.ones(values.shape, dtype=bool)
    while outside.any():
        left, right = values[outside] >> half, values[outside] & low
        for key in keys:
            left, right = right, left ^ (_mix(right ^ key) & low)
        values[outside] = (left << half) | right
        outside = values >= np.uint64(samples)
    return values.astype(np.int64)


@dataclass(frozen=True)
class GlobalOrder:
    """The order of one run. ``samples`` in the training split, ``global_batch`` samples a step."""

    samples: int
    global_batch: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Full batches an epoch; 0 when the split is smaller than one batch."""
        return self.samples // self.global_batch

    def step_batch(self, step: int) -> Index:
        """The samples of step ``step`` (from 0, counted over all epochs): [global_batch]."""
        epoch, step_of_epoch = divmod(step, self.steps_per_epoch)
        first = step_of_epoch * self.global_batch
        places = np.arange(first, first + self.global_batch, dtype=np.int64)
        return permuted(places, self.samples, self.seed, epoch)

    def rank_batch(self, step: int, rank: int, world: int) -> Index:
        """The share of one rank: [global_batch / world], one more on the first ranks where it does not divide."""
        return self.step_batch(step)[rank::world]

    def epochs_at(self, step: int) -> float:
        """Epochs done before step ``step``."""
        return step / self.steps_per_epoch

    def step_at(self, samples_consumed: int) -> int:
        """The step that begins at a global offset; raises ValueError when none does."""
        step, rest = divmod(samples_consumed, self.global_batch)
        if rest:
            raise ValueError(
                f"offset {samples_consumed} is no multiple of the global batch {self.global_batch}"
            )
        return step
