"""Token datasets: windows of a corpus, numbered and ordered as images are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from trainer.contracts.manifests import DatasetFacts, DatasetManifest
from trainer.data.dataset import StepSampler, dataset_info, make_split, step_loader
from trainer.data.manifest import DatasetName, parse_manifest
from trainer.data.order import GlobalOrder
from trainer.data.publish import describe
from trainer.data.verify import verify_dataset
from trainer.errors import ConfigurationError, DatasetError

NAME = DatasetName("counts", "v1")
FACTS = DatasetFacts(vocabulary=1000, sequence_length=8)


def write_counts(folder: Path, dtype: type = np.uint16) -> Path:
    """Two training shards that count up, 0..100 and 500..560; a held-out one of 20 tokens."""
    folder.mkdir(exist_ok=True)
    for name, tokens in {"train-0": range(101), "train-1": range(500, 561), "test-0": range(20)}.items():
        np.save(folder / f"{name}.npy", np.array(tokens, dtype))
    return folder


@pytest.fixture
def manifest(tmp_path: Path) -> DatasetManifest:
    return describe(write_counts(tmp_path), NAME, FACTS)


def test_samples_are_windows_that_share_no_target(tmp_path: Path, manifest: DatasetManifest) -> None:
    assert {shard.name: shard.samples for shard in manifest.shards} == {
        "test-0.npy": 2,  # of 19 targets
        "train-0.npy": 12,
        "train-1.npy": 7,
    }
    split = make_split(tmp_path, manifest, "train")
    batch = split.take(
        np.array([12, 0, 11, 18])
    )  # the first of the second shard, then the first shard's ends
    starts = torch.tensor([500, 0, 88, 548])[:, None]
    assert torch.equal(batch.inputs, starts + torch.arange(8))
    assert torch.equal(batch.targets, starts + torch.arange(1, 9))
    assert batch.numbers.tolist() == [12, 0, 11, 18]
    targets = split.take(np.arange(len(split))).targets.flatten().tolist()
    assert len(set(targets)) == len(targets) == 19 * 8


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_tokens_arrive_as_int64_of_whatever_they_are_stored_in(tmp_path: Path, dtype: type) -> None:
    manifest = describe(write_counts(tmp_path, dtype), NAME, FACTS)
    batch = make_split(tmp_path, manifest, "test").take(np.array([1]))
    assert batch.inputs.dtype == batch.targets.dtype == torch.int64
    assert batch.inputs.tolist() == [list(range(8, 16))]


def test_a_model_is_told_vocabulary_and_length(manifest: DatasetManifest) -> None:
    info = dataset_info(manifest)
    assert (info.kind, info.vocabulary, info.sequence_length) == ("tokens", 1000, 8)
    assert (info.classes, info.sample_shape) == (1000, (8,))
    assert (info.train_samples, info.test_samples) == (19, 2)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_any_world_reads_each_window_once_an_epoch(
    tmp_path: Path, manifest: DatasetManifest, world: int
) -> None:
    split = make_split(tmp_path, manifest, "train")
    order = GlobalOrder(len(split), 6, seed=1)
    seen: list[int] = []
    for rank in range(world):
        sampler = StepSampler(order, rank, world, 1, 0, order.steps_per_epoch)
        for batch in step_loader(split, sampler, torch.device("cpu"), 0):
            assert torch.equal(batch.inputs, split.take(batch.numbers.numpy()).inputs)
            seen += batch.numbers.tolist()
    assert len(seen) == len(set(seen)) == 18
    assert set(seen) == {number for step in range(3) for number in order.step_batch(step).tolist()}


def test_the_vocabulary_is_the_highest_token_and_one_where_nobody_says(tmp_path: Path) -> None:
    assert describe(write_counts(tmp_path), NAME, DatasetFacts(sequence_length=8)).vocabulary == 561


def test_facts_lie_beside_the_shards(tmp_path: Path) -> None:
    write_counts(tmp_path)
    (tmp_path / "dataset.json").write_text('{"vocabulary": 700, "sequenceLength": 10, "separator": 0}')
    manifest = describe(tmp_path, NAME)
    assert (manifest.vocabulary, manifest.sequence_length, manifest.separator) == (700, 10, 0)
    (tmp_path / "dataset.json").write_text('{"vocabulry": 700}')
    with pytest.raises(ConfigurationError, match=r"dataset\.json.*vocabulry"):
        describe(tmp_path, NAME)


def test_a_version_of_tokens_is_verified_like_one_of_images(
    tmp_path: Path, manifest: DatasetManifest
) -> None:
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    assert verify_dataset(tmp_path) == []
    np.save(tmp_path / "train-1.npy", np.arange(600, 661, dtype=np.uint16))
    (fault,) = verify_dataset(tmp_path)
    assert "train-1.npy has SHA-256" in fault


@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (np.arange(20, dtype=np.int64), r"must be uint16 or uint32 \[t\], not int64"),
        (np.zeros((4, 9), np.uint16), r"must be uint16 or uint32 \[t\], not uint16 \[4, 9\]"),
        (np.arange(8, dtype=np.uint16), r"8 tokens make no sample of 8 \+ 1"),
        (np.full(20, 1000, np.uint16), r"token 1000 is outside the vocabulary 0\.\.999"),
        (np.array([{}] * 20), r"not a readable \.npy"),
    ],
)
def test_a_shard_that_is_not_in_the_format_is_refused(tmp_path: Path, tokens: np.ndarray, told: str) -> None:
    np.save(tmp_path / "train-0.npy", tokens, allow_pickle=True)
    with pytest.raises(DatasetError, match=told):
        describe(tmp_path, NAME, FACTS)


def test_tokens_without_a_length_and_mixed_folders_are_refused(tmp_path: Path) -> None:
    write_counts(tmp_path)
    with pytest.raises(ConfigurationError, match="give --sequence-length"):
        describe(tmp_path, NAME)
    np.savez(tmp_path / "train-2.npz", images=np.zeros((1, 1, 2, 2), np.uint8), labels=np.zeros(1, np.int64))
    with pytest.raises(ConfigurationError, match="not of both"):
        describe(tmp_path, NAME, FACTS)


def test_a_manifest_of_tokens_without_their_facts_is_refused(manifest: DatasetManifest) -> None:
    broken = manifest.model_copy(update={"sequence_length": None}).to_json().encode()
    with pytest.raises(DatasetError, match="without vocabulary or sequenceLength"):
        parse_manifest(broken, "manifest.json")
