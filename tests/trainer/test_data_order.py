"""The global order of samples: a permutation an epoch, the same for every world size and every resume."""

from __future__ import annotations

from itertools import islice

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer.data.dataset import StepSampler
from trainer.data.order import GlobalOrder, WindowedOrder, permuted

calmly = settings(deadline=None, max_examples=60)
samples_counts = st.integers(1, 600)
seeds = st.integers(-(2**40), 2**40)


@st.composite
def orders(draw: st.DrawFn, multiple_of: int = 1) -> GlobalOrder:
    """Of runs that read a copy, and of streamed ones."""
    batch = draw(st.integers(1, 12)) * multiple_of
    if draw(st.booleans()):
        return GlobalOrder(draw(st.integers(batch, batch + 400)), batch, draw(seeds))
    shards = draw(st.lists(st.integers(1, 60), min_size=1, max_size=12).filter(lambda s: sum(s) >= batch))
    return WindowedOrder(sum(shards), batch, draw(seeds), tuple(shards), draw(st.integers(1, 5)))


@st.composite
def windowed(draw: st.DrawFn) -> WindowedOrder:
    shards = draw(st.lists(st.integers(1, 40), min_size=1, max_size=12))
    batch = draw(st.integers(1, min(30, sum(shards))))
    return WindowedOrder(sum(shards), batch, draw(seeds), tuple(shards), draw(st.integers(1, 5)))


@calmly
@given(samples=samples_counts, seed=seeds, epoch=st.integers(0, 1000))
def test_each_epoch_is_a_permutation_of_all_samples(samples: int, seed: int, epoch: int) -> None:
    assert sorted(permuted(np.arange(samples), samples, seed, epoch)) == list(range(samples))


@calmly
@given(samples=samples_counts, seed=seeds, data=st.data())
def test_any_place_is_computed_without_the_others(samples: int, seed: int, data: st.DataObject) -> None:
    whole = permuted(np.arange(samples), samples, seed, 3)
    place = data.draw(st.integers(0, samples - 1))
    assert permuted(np.array([place]), samples, seed, 3)[0] == whole[place]


@calmly
@given(order=orders(), step=st.integers(0, 90), data=st.data())
def test_every_world_size_reads_the_same_global_sequence(
    order: GlobalOrder, step: int, data: st.DataObject
) -> None:
    world = data.draw(st.integers(1, order.global_batch))
    shares = [order.rank_batch(step, rank, world) for rank in range(world)]
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    woven = [shares[i % world][i // world] for i in range(order.global_batch)]
    assert woven == order.step_batch(step).tolist()


@calmly
@given(
    order=orders(),
    total=st.integers(1, 60),
    # Each generation: its ranks, its accumulation, the steps it makes, and how many of them no save holds.
    lives=st.lists(st.tuples(*[st.integers(0, 60)] * 4), max_size=6),
)
def test_a_run_cut_into_worlds_of_any_size_takes_each_sample_as_the_uninterrupted_one(
    order: GlobalOrder, total: int, lives: list[tuple[int, int, int, int]]
) -> None:
    """What the samplers of all ranks hand out, step by step, over a life of interruptions and of steps done twice."""
    kept: dict[int, list[int]] = {}  # step: its samples over all ranks
    saved = 0
    for ranks, parts, steps, lost in [*lives, (0, 0, total, 0)]:
        world = 1 + ranks % order.global_batch
        accumulation = 1 + parts % (order.global_batch // world)
        samplers = [
            iter(StepSampler(order, rank, world, accumulation, saved, total)) for rank in range(world)
        ]
        reached = min(saved + steps, total)
        for step in range(saved, reached):
            micros = [next(sampler) for _ in range(accumulation) for sampler in samplers]
            assert max(map(len, micros)) - min(map(len, micros)) <= 1 and all(micros)
            kept[step] = [number for micro in micros for number in micro]
        if reached == total:
            assert [next(sampler, None) for sampler in samplers] == [None] * world  # all dry at once
        saved = max(saved, reached - lost)
    for step in range(total):
        assert sorted(kept[step]) == sorted(order.step_batch(step).tolist())
    for first in range(0, total, order.steps_per_epoch):
        steps = range(first, min(first + order.steps_per_epoch, total))
        epoch = [number for step in steps for number in kept[step]]
        assert len(epoch) == len(set(epoch))


@calmly
@given(order=orders(multiple_of=4), epoch=st.integers(0, 4))
def test_no_sample_comes_twice_in_an_epoch_and_only_the_tail_is_left_out(
    order: GlobalOrder, epoch: int
) -> None:
    first = epoch * order.steps_per_epoch
    seen = [int(i) for step in range(first, first + order.steps_per_epoch) for i in order.step_batch(step)]
    assert len(seen) == len(set(seen)) == order.samples - order.samples % order.global_batch


@calmly
@given(order=orders(multiple_of=4), total=st.integers(1, 40), data=st.data())
def test_a_resume_at_any_step_goes_on_with_the_same_sequence(
    order: GlobalOrder, total: int, data: st.DataObject
) -> None:
    stop = data.draw(st.integers(0, total))
    resumed_at = order.step_at(stop * order.global_batch)
    assert resumed_at == stop  # at an epoch's end too: neither repeated nor skipped
    whole = [order.step_batch(step).tolist() for step in range(total)]
    parts = [order.step_batch(step).tolist() for step in [*range(stop), *range(resumed_at, total)]]
    assert parts == whole


@calmly
@given(order=windowed(), step=st.integers(0, 60))
def test_a_streamed_step_reads_from_few_shards_that_are_known_before(order: WindowedOrder, step: int) -> None:
    ends = np.cumsum(order.shard_samples)
    shards = set(np.searchsorted(ends, order.step_batch(step), side="right").tolist())
    windows = [*islice(order.windows_from(step), order.windows_in(step))]
    assert shards <= {shard for window in windows for shard in window}
    assert all(len(window) <= order.window_shards for window in windows)
    if windows[0] != windows[-1]:
        assert shards & set(windows[0]) and shards & set(windows[-1]), "no window that the step does not need"


@calmly
@given(order=windowed(), epoch=st.integers(0, 3))
def test_windows_follow_each_other_over_an_epochs_end(order: WindowedOrder, epoch: int) -> None:
    first, count = epoch * order.steps_per_epoch, -(-len(order.shard_samples) // order.window_shards)
    windows = [*islice(order.windows_from(first), count)]
    plan = order.epoch(epoch)
    assert windows[0] == plan.shards_of(0)
    read = plan.bounds(len(plan.window_ends) - 1)[0] < order.steps_per_epoch * order.global_batch
    if read:
        assert sorted(shard for window in windows for shard in window) == list(
            range(len(order.shard_samples))
        )
        following = next(islice(order.windows_from(first), count, None))
        assert following == order.epoch(epoch + 1).shards_of(0)


def test_a_streamed_order_mixes_shards_and_samples_anew_each_epoch() -> None:
    order = WindowedOrder(400, 10, 3, (40,) * 10, 2)
    epochs = [[int(n) for s in range(e * 40, e * 40 + 40) for n in order.step_batch(s)] for e in range(3)]
    assert all(sorted(epoch) == list(range(400)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert len({order.epoch(e).shards_of(0) for e in range(8)}) > 4
    inside = [number % 40 for number in epochs[0][:80]]
    assert inside != sorted(inside) and len({n // 40 for n in epochs[0][:20]}) == 2, "two shards, well mixed"


def test_the_streamed_order_never_changes_between_releases() -> None:
    order = WindowedOrder(10, 5, 7, (4, 3, 3), 2)
    assert [order.step_batch(step).tolist() for step in range(4)] == [
        [9, 6, 4, 8, 7],
        [5, 0, 3, 2, 1],
        [9, 1, 3, 0, 2],
        [8, 7, 5, 6, 4],
    ]


def test_epochs_and_seeds_differ() -> None:
    places = np.arange(64)
    orders = {tuple(permuted(places, 64, seed, epoch)) for seed in range(4) for epoch in range(4)}
    assert len(orders) == 16


def test_every_sample_is_equally_likely_at_the_first_place() -> None:
    firsts = [int(permuted(np.array([0]), 5, seed, 0)[0]) for seed in range(2000)]
    counts = np.bincount(firsts, minlength=5)
    assert counts.min() > 320 and counts.max() < 480  # 400 expected, standard deviation 18


def test_the_order_never_changes_between_releases() -> None:
    """A run resumed by a newer trainer must read on where the older one stopped."""
    assert permuted(np.arange(10), 10, 0, 0).tolist() == [1, 0, 9, 3, 5, 6, 2, 8, 7, 4]
    assert permuted(np.arange(10), 10, 7, 2).tolist() == [2, 7, 4, 6, 9, 8, 5, 1, 0, 3]
