"""Datasets: published once, synced and verified, and never trained on when a byte is wrong."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from trainer.contracts import keys
from trainer.contracts.cluster import Cluster, GroupInfo
from trainer.contracts.manifests import DatasetFacts
from trainer.contracts.node_document import DatasetLocation
from trainer.data.dataset import Batch, ShardedSplit, StepSampler, dataset_info, make_split, step_loader
from trainer.data.formats import map_array
from trainer.data.manifest import DatasetName, parse_name
from trainer.data.order import GlobalOrder
from trainer.data.publish import describe, publish_dataset
from trainer.data.sample import CLASSES, make_sample
from trainer.data.sync import SPARE_BYTES, sync_dataset, version_dir
from trainer.data.verify import local_manifest, verify_dataset
from trainer.errors import ConfigurationError, DatasetError
from trainer.exit_codes import Exit

from tests.trainer.kit import Bench, numbers_of, write_numbered_dataset
from trainer import cli

NAME = DatasetName("numbers", "v1")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write_numbered_dataset(tmp_path / "source")
    return tmp_path / "source"


def test_the_sample_dataset_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for folder, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_sample(tmp_path / folder, samples=1100, test_samples=30, seed=seed)
    a, b, c = (describe(tmp_path / folder, NAME) for folder in "abc")
    assert a == b != c
    assert a.classes == len(CLASSES) and a.sample_shape == [3, 24, 24]
    assert [(s.split, s.samples) for s in a.shards] == [("test", 30), ("train", 1024), ("train", 76)]


def test_what_was_published_arrives(bench: Bench, source: Path, tmp_path: Path) -> None:
    manifest = describe(source, NAME)
    publish_dataset(bench.store, bench.location, source, manifest)
    reports: list[tuple[int, int]] = []
    target = tmp_path / "synced"
    got = sync_dataset(
        bench.store,
        bench.location,
        "numbers",
        "v1",
        target,
        lambda done, total: reports.append((done, total)),
    )
    assert got == manifest == local_manifest(target)
    assert verify_dataset(target) == []
    total = sum(shard.size_bytes for shard in manifest.shards)
    assert max(reports) == (total, total)


def test_a_version_is_published_once_and_never_changes(bench: Bench, source: Path, tmp_path: Path) -> None:
    manifest = describe(source, NAME)
    publish_dataset(bench.store, bench.location, source, manifest)
    write_numbered_dataset(source, samples=60)
    with pytest.raises(ConfigurationError, match=r"numbers@v1 exists already.*choose another version"):
        publish_dataset(bench.store, bench.location, source, describe(source, NAME))
    assert sync_dataset(bench.store, bench.location, "numbers", "v1", tmp_path / "synced") == manifest


def test_a_version_without_manifest_does_not_exist(bench: Bench, source: Path, tmp_path: Path) -> None:
    """Publishing died before its last write; a second try completes it."""
    manifest = describe(source, NAME)
    shard = manifest.shards[0]
    bench.store.upload(
        bench.bucket, f"{bench.location.prefix}v1/{shard.name}", source / shard.name, shard.sha256
    )
    with pytest.raises(DatasetError, match="numbers@v1 is not published"):
        sync_dataset(bench.store, bench.location, "numbers", "v1", tmp_path / "synced")
    publish_dataset(bench.store, bench.location, source, manifest)
    assert sync_dataset(bench.store, bench.location, "numbers", "v1", tmp_path / "synced") == manifest


def test_an_interrupted_sync_goes_on_and_a_rotten_local_shard_is_filled_again(trained: Bench) -> None:
    folder = version_dir(trained.root / "data", "numbers", "v1")
    kept, rotten, lost = folder / "train-0.npz", folder / "train-1.npz", folder / "train-2.npz"
    before = kept.stat().st_mtime_ns
    rotten.write_bytes(b"\0" * rotten.stat().st_size)
    lost.unlink()
    assert len(verify_dataset(folder)) == 2
    sync_dataset(trained.store, trained.location, "numbers", "v1", folder)
    assert verify_dataset(folder) == []
    assert kept.stat().st_mtime_ns == before  # not fetched again


def test_room_on_the_disk_is_asked_for_before_anything_is_fetched(
    trained: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = local_manifest(version_dir(trained.root / "data", "numbers", "v1"))
    total = sum(shard.size_bytes for shard in manifest.shards)
    free = SPARE_BYTES + total - 1
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: SimpleNamespace(free=free))
    target = tmp_path / "synced"

    def sync() -> None:
        sync_dataset(trained.store, trained.location, "numbers", "v1", target)

    with pytest.raises(
        DatasetError, match=r"numbers@v1 needs .* GB more in .*synced, where .* GB are free"
    ) as raised:
        sync()
    assert raised.value.exit_code is Exit.DATASET and list(target.iterdir()) == []
    free += 1
    sync()
    free = 0
    sync()  # what is there already needs no room


def test_one_split_can_be_had_alone(trained: Bench, tmp_path: Path) -> None:
    sync_dataset(trained.store, trained.location, "numbers", "v1", tmp_path / "synced", splits={"test"})
    assert sorted(path.name for path in (tmp_path / "synced").iterdir()) == ["manifest.json", "test-0.npz"]


def test_any_number_of_ranks_and_loaders_shares_one_shard(tmp_path: Path) -> None:
    """Samples are dealt out, not shards: none is too few for a world, no rank goes without."""
    write_numbered_dataset(tmp_path)
    for extra in ("train-1.npz", "train-2.npz"):
        (tmp_path / extra).unlink()
    split = make_split(tmp_path, describe(tmp_path, NAME), "train")
    order = GlobalOrder(len(split), 16, seed=1)
    seen: list[int] = []
    for rank in range(8):
        sampler = StepSampler(order, rank, 8, 1, 0, 2)
        seen += [
            n for batch in step_loader(split, sampler, torch.device("cpu"), 0) for n in batch.numbers.tolist()
        ]
    assert sorted(seen) == list(range(32))


def test_a_corrupted_shard_ends_with_20_and_its_name(
    trained: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_of(trained, monkeypatch)
    key = f"{trained.location.prefix}v1/train-1.npz"
    fetched = trained.store.get(trained.bucket, key)
    assert fetched is not None
    body = bytearray(fetched.body)
    body[1000] ^= 1
    trained.store.put(trained.bucket, key, bytes(body))
    assert cli.main(["dataset", "sync", "numbers@v1", str(tmp_path / "synced")]) == Exit.DATASET
    message = capsys.readouterr().err
    assert "DATASET (20)" in message and "shard train-1.npz" in message and message.count("\n") == 1
    assert not (tmp_path / "synced" / "manifest.json").exists()


def cluster_of(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bench's bucket as a stack with the datasets `numbers` and `shapes`."""
    locations = {
        name: DatasetLocation(bucket=bench.bucket, prefix=f"datasets/{name}/")
        for name in ("numbers", "shapes")
    }
    cluster = Cluster(
        stack="test",
        region="eu-central-1",
        artifacts_bucket=bench.bucket,
        groups={"local": GroupInfo(auto_scaling_group="test-local", max_nodes=2)},
        datasets=locations,
    )
    bench.store.put(bench.bucket, keys.cluster(), cluster.to_json().encode())
    monkeypatch.setenv("TRAINER_ARTIFACTS_BUCKET", bench.bucket)


def test_the_commands_from_sample_to_verified_copy(
    bench: Bench, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_of(bench, monkeypatch)
    made, synced = str(tmp_path / "made"), str(tmp_path / "synced")
    assert (
        cli.main(["dataset", "make-sample", made, "--samples", "64", "--test-samples", "16", "--json"]) == 0
    )
    assert json.loads(capsys.readouterr().out)["samples"] == {"train": 64, "test": 16}
    assert cli.main(["dataset", "publish", made, "shapes@v1", "--classes", "6"]) == 0
    assert f"published shapes@v1 to s3://{bench.bucket}/datasets/shapes/v1/" in capsys.readouterr().out
    assert cli.main(["dataset", "sync", "shapes@v1", synced, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["dataset"] == "shapes@v1"
    assert cli.main(["dataset", "verify", synced]) == 0
    assert "is as published" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["sync", "shapes@v9", "{tmp}/x"], Exit.DATASET, "shapes@v9 is not published"),
        (["sync", "shapes", "{tmp}/x"], Exit.CONFIGURATION, "NAME@VERSION"),
        (["sync", "shape@v1", "{tmp}/x"], Exit.CONFIGURATION, "it has: numbers, shapes"),
        (["publish", "{tmp}/absent", "shapes@v1"], Exit.CONFIGURATION, "is not a folder"),
        (["verify", "{tmp}"], Exit.DATASET, "sync one into it; trainer dataset publish makes one"),
        (["make-sample", "{tmp}/x", "--samples", "0"], Exit.CONFIGURATION, "at least 1"),
    ],
)
def test_mistakes_get_one_line_and_a_named_code(
    bench: Bench,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    code: Exit,
    told: str,
) -> None:
    cluster_of(bench, monkeypatch)
    assert cli.main(["dataset", *(argument.format(tmp=tmp_path) for argument in arguments)]) == code
    message = capsys.readouterr().err
    assert told in message and code.name in message and message.count("\n") == 1


def test_without_a_bucket_the_command_says_where_to_get_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("TRAINER_ARTIFACTS_BUCKET", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    assert cli.main(["dataset", "sync", "shapes@v1", str(tmp_path)]) == Exit.CONFIGURATION
    assert "--artifacts-bucket" in capsys.readouterr().err


def test_a_machine_without_numpy_is_told_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("trainer.needs.find_spec", lambda _name: None)
    assert cli.main(["dataset", "make-sample", str(tmp_path / "made")]) == Exit.CONFIGURATION
    assert "pip install numpy" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arrays", "told"),
    [
        ({"images": np.zeros((4, 1, 8, 8), np.float32), "labels": np.zeros(4, np.int64)}, "must be uint8"),
        (
            {"images": np.zeros((4, 1, 8, 8), np.uint8), "labels": np.zeros(3, np.int64)},
            r"must be int64 \[4\]",
        ),
        ({"images": np.zeros((4, 1, 8, 8), np.uint8)}, 'no array "labels"'),
        ({"images": np.zeros((0, 1, 8, 8), np.uint8), "labels": np.zeros(0, np.int64)}, "holds no sample"),
        ({"images": np.zeros((4, 1, 8, 8), np.uint8), "labels": np.full(4, 9)}, "outside 0..3"),
    ],
)
def test_a_shard_that_is_not_in_the_format_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], told: str
) -> None:
    np.savez(tmp_path / "train-0.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=told):
        describe(tmp_path, NAME, DatasetFacts(classes=4))


def test_compressed_and_broken_shards_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train-0.npz"
    np.savez_compressed(path, images=np.zeros((4, 1, 8, 8), np.uint8), labels=np.zeros(4, np.int64))
    with pytest.raises(DatasetError, match="not savez_compressed"):
        describe(tmp_path, NAME)
    path.write_bytes(b"PK nothing")
    with pytest.raises(DatasetError, match=r"not a readable \.npz"):
        describe(tmp_path, NAME)


def test_mapped_arrays_are_the_stored_ones(source: Path) -> None:
    with np.load(source / "train-1.npz") as stored:
        for member in ("images", "labels"):
            assert np.array_equal(map_array(source / "train-1.npz", member), stored[member])


def test_samples_are_found_across_shards_in_the_order_asked_for(source: Path) -> None:
    split = ShardedSplit(source, describe(source, NAME), "train")
    wanted = np.array([95, 0, 31, 32, 33, 64, 63])
    images, labels, numbers = split.take(wanted)
    assert numbers_of(images.float() / 255) == wanted.tolist()
    assert labels.tolist() == (wanted % 4).tolist() and numbers.tolist() == wanted.tolist()
    assert dataset_info(describe(source, NAME)).train_samples == len(split) == 96


@pytest.mark.parametrize("workers", [0, 1])
def test_the_loader_yields_micro_batches_across_epochs_in_global_order_and_tells_what_it_read(
    source: Path, workers: int
) -> None:
    split = ShardedSplit(source, describe(source, NAME), "train")
    order = GlobalOrder(len(split), 20, seed=2)  # four steps an epoch, sixteen samples left out
    sampler = StepSampler(order, rank=1, world=3, accumulation=3, first=3, total=6)
    batches = list(step_loader(split, sampler, torch.device("cpu"), workers))
    assert [len(batch.labels) for batch in batches] == [3, 2, 2] * 3  # seven of twenty samples a step
    assert len(batches) == len(sampler)
    expected = [number for step in (3, 4, 5) for number in order.rank_batch(step, 1, 3).tolist()]
    assert [number for batch in batches for number in batch.numbers.tolist()] == expected
    assert [number for batch in batches for number in numbers_of(batch.images.float() / 255)] == expected


@pytest.mark.parametrize("text", ["shapes", "shapes@", "@v1", "Shapes@v1", "a/b@v1", "a@v 1"])
def test_dataset_names_are_checked(text: str) -> None:
    with pytest.raises(ConfigurationError, match="NAME@VERSION"):
        parse_name(text)


@pytest.mark.parametrize("samples", [0, 5])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_a_batch_comes_from_a_loader_as_one_tensor_and_as_it_was(samples: int, dtype: torch.dtype) -> None:
    inputs = torch.arange(samples * 3 * 7).reshape(samples, 3, 7).to(dtype)
    batch = Batch(inputs, torch.arange(samples) + 1, torch.arange(samples) + 2)
    _, (packed, _) = batch.__reduce__()
    assert isinstance(packed, torch.Tensor) and packed.dtype == torch.uint8
    back = pickle.loads(pickle.dumps(batch))
    for was, now in zip(batch, back, strict=True):
        assert torch.equal(was, now) and was.dtype == now.dtype
