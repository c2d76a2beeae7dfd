"""Any schedule of interruptions and world sizes: what is really read is what the uninterrupted run reads."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import numpy as np
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from trainer.contracts.manifests import DatasetManifest
from trainer.contracts.node_document import DatasetLocation
from trainer.data.dataset import Batch, ShardedSplit, StepSampler, make_split, step_loader
from trainer.data.manifest import DatasetName
from trainer.data.publish import describe
from trainer.data.stream import StreamedSplit, new_cache

from tests.trainer.kit import numbered_images, numbers_of

SEED = 3


@dataclass(frozen=True)
class Life:
    """One generation, for what it comes to in its world."""

    ranks: int  # over the global batch: 1 more than the rest
    parts: int  # micro-batches a step, likewise
    steps: int  # that it makes
    unsaved: int  # of them that no checkpoint holds: the next life does them again


@dataclass(frozen=True)
class Story:
    shards: tuple[int, ...]  # samples of each
    batch: int
    total: int  # steps
    lives: tuple[Life, ...]
    how: Literal["copy", "windows of a copy", "stream"]
    window: int

    @property
    def steps_per_epoch(self) -> int:
        return sum(self.shards) // self.batch


@st.composite
def stories(draw: st.DrawFn) -> Story:
    shards = tuple(draw(st.lists(st.integers(1, 23), min_size=1, max_size=7)))
    batch = draw(st.integers(1, min(8, sum(shards))))
    numbers = st.integers(0, 30)
    return Story(
        shards=shards,
        batch=batch,
        total=draw(
            st.integers(1, min(40, 3 * (sum(shards) // batch) + 2))
        ),  # ends and tails of epochs are in it
        lives=tuple(draw(st.lists(st.builds(Life, numbers, numbers, numbers, numbers), max_size=5))),
        how=draw(st.sampled_from(("copy", "windows of a copy", "stream"))),
        window=draw(st.integers(1, 8)),
    )


class Folder:
    """Stands for the bucket."""

    def __init__(self, source: Path) -> None:
        self._source = source

    def download(self, _bucket: str, key: str, target: Path, *_rest: Any) -> None:
        part = target.with_name(target.name + ".part")
        shutil.copy(self._source / key.rpartition("/")[2], part)
        part.rename(target)


def publish(folder: Path, shards: tuple[int, ...]) -> DatasetManifest:
    """Sample i of the split carries the number i, wherever it lies."""
    folder.mkdir()
    ends = np.cumsum(shards)
    for shard, (size, end) in enumerate(zip(shards, ends.tolist(), strict=True)):
        numbers = np.arange(end - size, end)
        np.savez(
            folder / f"train-{shard:03d}.npz",
            images=numbered_images(numbers),
            labels=numbers.astype(np.int64),
        )
    return describe(folder, DatasetName("d", "v1"))


def split_of(story: Story, source: Path, manifest: DatasetManifest, cache: Path) -> ShardedSplit:
    """What one process reads from."""
    if story.how == "copy":
        return make_split(source, manifest, "train")
    if story.how == "windows of a copy":
        return make_split(source, manifest, "train", story.window)
    location = DatasetLocation(bucket="b", prefix="d/")
    make_store: Any = lambda: Folder(source)  # noqa: E731
    return StreamedSplit(make_store, location, manifest, cache, story.window)


def told(batch: Batch) -> list[int]:
    """The numbers in the images themselves, which are also those that the reader tells and the labels."""
    seen = numbers_of(batch.inputs.float() / 255)
    assert seen == batch.numbers.tolist() == batch.targets.tolist()
    return seen


def live(story: Story, root: Path) -> dict[int, list[int]]:
    """Step to its samples in global order, as the last life that did the step read them."""
    manifest = publish(root / "source", story.shards)
    done: dict[int, list[int]] = {}
    saved = 0
    for generation, life in enumerate((*story.lives, Life(0, 0, story.total, 0)), start=1):
        world = 1 + life.ranks % story.batch
        accumulation = 1 + life.parts % (story.batch // world)
        cache = new_cache(root / "node", generation)
        reached = min(saved + life.steps, story.total)

        def loader(rank: int) -> Iterator[Batch]:
            split = split_of(story, root / "source", manifest, cache)  # noqa: B023
            order = split.order(story.batch, SEED)
            sampler = StepSampler(order, rank, world, accumulation, saved, story.total)  # noqa: B023
            return iter(step_loader(split, sampler, torch.device("cpu"), 0))

        loaders = [loader(rank) for rank in range(world)]
        for step in range(saved, reached):
            shares = [[n for _ in range(accumulation) for n in told(next(one))] for one in loaders]
            assert max(map(len, shares)) - min(map(len, shares)) <= 1 and all(shares)
            done[step] = [shares[place % world][place // world] for place in range(story.batch)]
        if reached == story.total:
            assert [next(one, None) for one in loaders] == [None] * world, "all run dry at once"
        saved = max(saved, reached - life.unsaved)
    return done


@settings(deadline=None, max_examples=30)
@given(story=stories())
@example(
    Story((5, 1, 7), 4, 7, (Life(3, 0, 3, 0), Life(1, 1, 3, 1)), "stream", 2)
)  # cut at the very end of an epoch
@example(Story((1,), 1, 2, (Life(0, 0, 1, 0),), "stream", 8))
def test_what_is_read_is_what_the_uninterrupted_run_reads_each_sample_once_an_epoch(story: Story) -> None:
    with TemporaryDirectory() as folder:
        done = live(story, Path(folder))
        manifest = describe(Path(folder) / "source", DatasetName("d", "v1"))
        order = split_of(story, Path(folder), manifest, Path(folder)).order(story.batch, SEED)
    assert done == {step: order.step_batch(step).tolist() for step in range(story.total)}
    for first in range(0, story.total, story.steps_per_epoch):
        steps = range(first, min(first + story.steps_per_epoch, story.total))
        epoch = [number for step in steps for number in done[step]]
        assert len(epoch) == len(set(epoch)) == len(steps) * story.batch, (
            "each sample once, the global batch kept"
        )
