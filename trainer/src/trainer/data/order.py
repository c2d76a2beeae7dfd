"""Which sample is read when: a pure function of seed, epoch and place, the same for every world size.

An epoch is a permutation of all training samples, made by a keyed Feistel network over the sample numbers,
so that any place of it is computed directly: no table to keep, nothing to replay at a resume, and no
dependence on a library's random stream, which may change between versions. Step s of a run reads the next
``global_batch`` places; sample i of the step goes to rank i mod world, so that the ranks' shares differ by at
most one sample. The tail of an epoch that fills no batch is left out, and is another one in each epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]

ROUNDS = 8
BLOCK_PLACES = 1 << 14  # worked out at once
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
    _blocks: dict[tuple[int, int], Index] = field(default_factory=dict, init=False, compare=False, repr=False)

    @property
    def steps_per_epoch(self) -> int:
        """Full batches an epoch; 0 when the split is smaller than one batch."""
        return self.samples // self.global_batch

    def step_batch(self, step: int) -> Index:
        """The samples of step ``step`` (from 0, counted over all epochs): [global_batch]."""
        epoch, step_of_epoch = divmod(step, self.steps_per_epoch)
        # Many steps are worked out at once, and the last such block is kept: of few places the calls cost more than
        # the numbers.
        steps = max(1, BLOCK_PLACES // self.global_batch)
        block, step_of_block = divmod(step_of_epoch, steps)
        if (samples := self._blocks.get((epoch, block))) is None:
            end = min((block + 1) * steps, self.steps_per_epoch) * self.global_batch
            samples = self.samples_at(
                np.arange(block * steps * self.global_batch, end, dtype=np.int64), epoch
            )
            self._blocks.clear()
            self._blocks[epoch, block] = samples
        first = step_of_block * self.global_batch
        return samples[first : first + self.global_batch].copy()

    def samples_at(self, places: Index, epoch: int) -> Index:
        """The samples at the given places of an epoch; same shape."""
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


@dataclass(frozen=True)
class WindowedOrder(GlobalOrder):
    """The order of a streamed run: near in time is near in place, so that a few shards at a time are enough.

    In each epoch the shards are permuted, then every ``window_shards`` of them in a row make a window, and the
    samples of a window are permuted among themselves. Like `GlobalOrder` a pure function of seed, epoch and place:
    it depends on the dataset and on ``window_shards``, not on ranks, nodes or caches. Samples meet only others of
    their window's shards, so shards should hold a mixture (`trainer dataset import` mixes before it packs).
    """

    shard_samples: tuple[int, ...] = ()  # of the training split, in manifest order
    window_shards: int = 1
    _epochs: dict[int, Epoch] = field(default_factory=dict, init=False, compare=False, repr=False)

    def samples_at(self, places: Index, epoch: int) -> Index:
        plan = self.epoch(epoch)
        samples = np.empty_like(places)
        window_of = np.searchsorted(plan.window_ends, places, side="right")
        for window in np.unique(window_of).tolist():
            begin, end = plan.bounds(window)
            here = window_of == window
            # A window's own permutation: the seed is the run's, the place among permutations epoch and window.
            mixed = permuted(places[here] - begin, end - begin, self.seed, (epoch << 32) + window + 1) + begin
            shard = np.searchsorted(plan.shard_ends, mixed, side="right")
            ends, sizes = plan.shard_ends[shard], plan.shard_sizes[shard]
            samples[here] = plan.shard_firsts[shard] + mixed - (ends - sizes)
        return samples

    def epoch(self, epoch: int) -> Epoch:
        """The epoch's plan; the last two are kept."""
        if epoch not in self._epochs:
            for old in sorted(self._epochs)[:-1]:
                self._epochs.pop(old, None)
            self._epochs[epoch] = self._plan(epoch)
        return self._epochs[epoch]

    def _plan(self, epoch: int) -> Epoch:
        count = len(self.shard_samples)
        shards = permuted(np.arange(count, dtype=np.int64), count, self.seed, epoch << 32)
        sizes = np.array(self.shard_samples, dtype=np.int64)
        firsts, ends = np.cumsum(sizes) - sizes, np.cumsum(sizes[shards])
        last_of_window = np.minimum(
            np.arange(self.window_shards, count + self.window_shards, self.window_shards), count
        )
        return Epoch(
            shards, sizes[shards], firsts[shards], ends, ends[last_of_window - 1], self.window_shards
        )

    def windows_from(self, step: int) -> Iterator[tuple[int, ...]]:
        """The shards of each window from the one that step ``step`` begins in, across epochs, without end.

        Of an epoch's last windows those are left out that lie wholly in the tail which fills no batch.
        """
        epoch, step_of_epoch = divmod(step, self.steps_per_epoch)
        place = step_of_epoch * self.global_batch
        while True:
            plan = self.epoch(epoch)
            window = int(np.searchsorted(plan.window_ends, place, side="right"))
            while plan.bounds(window)[0] < self.steps_per_epoch * self.global_batch:
                yield plan.shards_of(window)
                window += 1
                if window == len(plan.window_ends):
                    break
            epoch, place = epoch + 1, 0

    def windows_in(self, step: int) -> int:
        """How many windows the batch of step ``step`` has samples of."""
        epoch, step_of_epoch = divmod(step, self.steps_per_epoch)
        first = step_of_epoch * self.global_batch
        ends = self.epoch(epoch).window_ends
        windows = np.searchsorted(ends, [first, first + self.global_batch - 1], side="right")
        return int(windows[1] - windows[0]) + 1


@dataclass(frozen=True)
class Epoch:
    """One epoch of a windowed order; arrays are by place in the epoch, not by number in the manifest."""

    shards: Index  # numbers in the manifest
    shard_sizes: Index  # samples
    shard_firsts: Index  # number of the shard's first sample in the split
    shard_ends: Index  # place in the epoch behind the shard's last sample
    window_ends: Index
    window_shards: int

    def bounds(self, window: int) -> tuple[int, int]:
        """First place of a window, and the place behind its last one."""
        return int(self.window_ends[window - 1]) if window else 0, int(self.window_ends[window])

    def shards_of(self, window: int) -> tuple[int, ...]:
        return tuple(self.shards[window * self.window_shards : (window + 1) * self.window_shards].tolist())
