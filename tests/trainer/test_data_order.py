"""The global order of samples: a permutation an epoch, the same for every world size and every resume."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer.data.dataset import StepSampler
from trainer.data.order import GlobalOrder, permuted

calmly = settings(deadline=None, max_examples=60)
samples_counts = st.integers(1, 600)
seeds = st.integers(-(2**40), 2**40)


@st.composite
def orders(draw: st.DrawFn, multiple_of: int = 1) -> GlobalOrder:
    batch = draw(st.integers(1, 12)) * multiple_of
    return GlobalOrder(draw(st.integers(batch, batch + 400)), batch, draw(seeds))


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
