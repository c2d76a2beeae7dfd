"""Streamed training: the same samples as from a copy, a few shards at a time, each fetched once and verified."""

from __future__ import annotations

import shutil
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trainer.contracts.manifests import DatasetManifest
from trainer.contracts.node_document import DatasetLocation
from trainer.data.dataset import Batch, ShardedSplit, StepSampler, make_split, step_loader
from trainer.data.manifest import DatasetName
from trainer.data.order import WindowedOrder
from trainer.data.publish import describe, publish_dataset
from trainer.data.stream import StreamedSplit, new_cache
from trainer.data.sync import cache_bytes
from trainer.errors import DatasetError, StoreError
from trainer.exit_codes import Exit
from trainer.store import IntegrityError, Store
from trainer.worker import as_fault

from tests.trainer.kit import Bench, numbered_images

SHARDS, SHARD_SAMPLES, BATCH, WINDOW = 10, 12, 8, 2
STEPS = SHARDS * SHARD_SAMPLES // BATCH  # an epoch's
CPU = torch.device("cpu")


@dataclass
class Shelf:
    """Stands for the store: gives out the shards of a folder and counts."""

    source: Path
    given: Counter[str] = field(default_factory=Counter)
    lock: threading.Lock = field(default_factory=threading.Lock)
    refuse: dict[str, Exception] = field(default_factory=dict)

    def download(self, _bucket: str, key: str, target: Path, *_rest: Any) -> None:
        name = key.rpartition("/")[2]
        if name in self.refuse:
            raise self.refuse[name]
        with self.lock:
            self.given[name] += 1
        shutil.copy(self.source / name, target.with_name(target.name + ".part"))
        target.with_name(target.name + ".part").rename(target)


@dataclass
class Node:
    shelf: Shelf
    manifest: DatasetManifest
    cache: Path

    def split(self) -> StreamedSplit:
        make: Any = lambda: self.shelf  # noqa: E731
        return StreamedSplit(
            make, DatasetLocation(bucket="b", prefix="d/"), self.manifest, self.cache, WINDOW
        )

    def held(self) -> set[str]:
        return {path.name for path in self.cache.glob("*.npz")}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    source = tmp_path / "source"
    source.mkdir()
    for shard in range(SHARDS):
        numbers = np.arange(shard * SHARD_SAMPLES, (shard + 1) * SHARD_SAMPLES)
        np.savez(
            source / f"train-{shard}.npz", images=numbered_images(numbers), labels=numbers.astype(np.int64)
        )
    return Node(Shelf(source), describe(source, DatasetName("d", "v1")), new_cache(tmp_path / "node", 1))


def read(
    split: ShardedSplit, rank: int = 0, world: int = 1, first: int = 0, total: int = STEPS
) -> list[Batch]:
    """One rank's batches; the loader reads in this process."""
    sampler = StepSampler(split.order(BATCH, seed=3), rank, world, 1, first, total)
    return list(step_loader(split, sampler, CPU, 0))


def same(one: list[Batch], other: list[Batch]) -> bool:
    return len(one) == len(other) and all(
        torch.equal(a, b) for x, y in zip(one, other, strict=True) for a, b in zip(x, y, strict=True)
    )


def test_a_streamed_run_reads_what_a_copy_in_the_same_order_gives(node: Node) -> None:
    copy = make_split(node.shelf.source, node.manifest, "train", window_shards=WINDOW)
    assert same(read(node.split(), total=2 * STEPS), read(copy, total=2 * STEPS))
    whole = read(copy)
    numbers = [number for batch in whole for number in batch.numbers.tolist()]
    assert sorted(numbers) == list(range(SHARDS * SHARD_SAMPLES))
    assert [n for batch in whole for n in batch.labels.tolist()] == numbers


def test_a_node_holds_three_windows_at_most_and_fetches_each_shard_once_an_epoch(node: Node) -> None:
    split = node.split()
    sampler = StepSampler(split.order(BATCH, seed=3), 0, 1, 1, 0, STEPS)
    for _ in step_loader(split, sampler, CPU, 0):
        assert len(node.held()) <= 4 * WINDOW  # three windows; a batch at a seam has one more
        assert (
            sum((node.cache / name).stat().st_size for name in node.held())
            <= cache_bytes(node.manifest, WINDOW) * 4 / 3
        )
    first_epoch = {shard.name for shard in node.manifest.shards}
    assert set(node.shelf.given) == first_epoch
    assert sum(node.shelf.given.values()) <= SHARDS + 2 * WINDOW  # and the next epoch's first windows ahead


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_of_a_node_share_what_was_fetched(node: Node, world: int) -> None:
    """Up to the epoch's last window: there the first ones of the next epoch are fetched ahead."""
    splits = [node.split() for _ in range(world)]
    loaders = [
        iter(step_loader(split, StepSampler(split.order(BATCH, 3), rank, world, 1, 0, STEPS - 3), CPU, 0))
        for rank, split in enumerate(splits)
    ]
    order = splits[0].order(BATCH, 3)
    for step in range(STEPS - 3):
        together = [next(loader).numbers.tolist() for loader in loaders]
        woven = sorted(number for share in together for number in share)
        assert woven == sorted(order.step_batch(step).tolist())
    assert max(node.shelf.given.values()) == 1


def test_a_resume_begins_with_the_shards_of_its_step(node: Node) -> None:
    whole = read(node.split())
    fresh = Node(Shelf(node.shelf.source), node.manifest, new_cache(node.cache.parent, 2))
    assert same(read(fresh.split(), first=STEPS - 3), whole[STEPS - 3 :])
    order = node.split().order(BATCH, 3)
    assert isinstance(order, WindowedOrder)
    last, ahead = islice(order.windows_from(STEPS - 3), 2)
    fetched = {int(name[len("train-") : -len(".npz")]) for name in fresh.shelf.given}
    assert set(last) <= fetched <= {*last, *ahead}


def test_a_process_that_is_late_fetches_again_what_others_removed(node: Node) -> None:
    late = node.split()
    read(node.split())
    assert same(read(late), read(make_split(node.shelf.source, node.manifest, "train", WINDOW)))


def test_a_shard_that_cannot_be_had_ends_it_with_the_shards_name(node: Node) -> None:
    node.shelf.refuse["train-3.npz"] = IntegrityError(
        "s3://b/d/v1/train-3.npz has SHA-256 1, its manifest says 2"
    )
    with pytest.raises(
        DatasetError, match=r"d@v1, shard train-3\.npz: .*publish the data under a new version"
    ):
        read(node.split())
    node.shelf.refuse["train-3.npz"] = StoreError("S3 is away")
    with pytest.raises(StoreError, match="away"):
        read(node.split())


def test_a_fault_in_a_loader_process_is_one_line_with_its_own_code(node: Node) -> None:
    node.shelf.refuse["train-3.npz"] = IntegrityError("has SHA-256 1, its manifest says 2")
    split = node.split()
    sampler = StepSampler(split.order(BATCH, seed=3), 0, 1, 1, 0, STEPS)
    caught: list[DatasetError] = []
    try:
        list(step_loader(split, sampler, CPU, 1))
    except DatasetError as error:
        caught.append(
            error.with_traceback(None)
        )  # its frames would keep the loader, which ignores SIGTERM, alive
    fault = as_fault(caught[0])
    assert fault.exit_code is Exit.DATASET and str(fault).startswith(
        "dataset d@v1, shard train-3.npz: has SHA-256 1"
    )
    assert "\n" not in str(fault)


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_stream_from_a_bucket(bench: Bench, node: Node, workers: int, tmp_path: Path) -> None:
    location = DatasetLocation(bucket=bench.bucket, prefix="datasets/d/")
    publish_dataset(bench.store, location, node.shelf.source, node.manifest)
    split = StreamedSplit(partial(Store), location, node.manifest, node.cache, WINDOW)
    sampler = StepSampler(split.order(BATCH, seed=3), 1, 2, 2, 1, 9)
    batches = list(step_loader(split, sampler, CPU, workers))
    copy = make_split(node.shelf.source, node.manifest, "train", WINDOW)
    again = StepSampler(copy.order(BATCH, seed=3), 1, 2, 2, 1, 9)
    assert same(batches, list(step_loader(copy, again, CPU, 0)))


def test_a_new_generations_cache_is_empty_and_the_old_one_is_gone(tmp_path: Path) -> None:
    old = new_cache(tmp_path, 1)
    (old / "train-0.npz").write_bytes(b"x")
    (tmp_path / "dataset").mkdir()
    new = new_cache(tmp_path, 2)
    assert list(new.iterdir()) == [] and sorted(p.name for p in tmp_path.iterdir()) == ["dataset", "gen-0002"]
    (new / "train-0.npz").write_bytes(b"x")
    assert list(new_cache(tmp_path, 2).iterdir()) != [], "another rank of this generation may have begun"
