"""Shards to tar, HDF5 and TFRecord and back: the same samples, read by the formats' own libraries where there are."""

from __future__ import annotations

import io
import struct
import sys
import tarfile
from pathlib import Path
from typing import Any

import crc32c
import h5py
import numpy as np
import pytest
from PIL import Image
from trainer.contracts.manifests import DatasetFacts
from trainer.data import tfrecord_files
from trainer.data.convert import convert
from trainer.data.manifest import DatasetName
from trainer.data.pack import FACTS, TokenPacker
from trainer.data.publish import describe
from trainer.errors import ConfigurationError, DatasetError

from tests.trainer.kit import write_numbered_dataset

NAME = DatasetName("d", "v1")


def turn(source: Path, target: Path, to: str, sequence_length: int | None = None) -> None:
    convert(source, target, to, sequence_length, lambda _done, _total: None)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    write_numbered_dataset(tmp_path / "images")
    (tmp_path / "images" / FACTS).write_text(DatasetFacts(classes=9, class_names=["a"]).to_json())
    return tmp_path / "images"


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    (tmp_path / "tokens").mkdir()
    packer = TokenPacker(tmp_path / "tokens", 100, sequence_length=8)
    packer.add("train", np.arange(130, dtype=np.uint16))
    packer.add("test", np.arange(33, dtype=np.uint16))
    packer.finish(DatasetFacts(vocabulary=500, sequence_length=8))
    return tmp_path / "tokens"


@pytest.mark.parametrize("form", ["tar", "hdf5", "tfrecord"])
@pytest.mark.parametrize("kind", ["images", "tokens"])
def test_what_was_converted_comes_back_as_the_same_samples(
    request: pytest.FixtureRequest, tmp_path: Path, form: str, kind: str
) -> None:
    source = request.getfixturevalue(kind)
    turn(source, tmp_path / form, form)
    turn(tmp_path / form, tmp_path / "back", "shards")
    before, after = describe(source, NAME), describe(tmp_path / "back", NAME)
    for split in ("train", "test"):
        joined = []
        for manifest, folder in ((before, source), (after, tmp_path / "back")):
            shards = [np.load(folder / s.name) for s in manifest.shards if s.split == split]
            if kind == "images":
                joined.append(
                    [np.concatenate([shard[part] for shard in shards]) for part in ("images", "labels")]
                )
            else:
                joined.append([np.concatenate(shards)])
        for ours, theirs in zip(*joined, strict=True):
            assert ours.dtype == theirs.dtype and np.array_equal(ours, theirs)
    assert (before.classes, before.vocabulary) == (after.classes, after.vocabulary)
    assert before.class_names == after.class_names


def test_hdf5_files_hold_plain_datasets(images: Path, tmp_path: Path) -> None:
    turn(images, tmp_path / "out", "hdf5")
    with h5py.File(tmp_path / "out" / "train-1.h5") as opened, np.load(images / "train-1.npz") as shard:
        file: Any = opened
        assert np.array_equal(file["images"], shard["images"]) and np.array_equal(
            file["labels"], shard["labels"]
        )


def test_tar_files_are_webdatasets_layout(images: Path, tmp_path: Path) -> None:
    turn(images, tmp_path / "out", "tar")
    with tarfile.open(tmp_path / "out" / "train-1.tar") as archive:
        assert archive.getnames()[:3] == ["00000000.npy", "00000000.cls", "00000001.npy"]
        label = archive.extractfile("00000001.cls")
        assert label is not None and label.read() == b"1"


def foreign_tar(path: Path, members: dict[str, bytes]) -> None:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, body in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))


def png(tone: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (3, 2), (tone, 0, 0)).save(buffer, "PNG")
    return buffer.getvalue()


def test_tar_files_of_others_hold_encoded_images_and_more(tmp_path: Path) -> None:
    foreign_tar(
        tmp_path / "in" / "shard-0.tar",
        {
            "a/one.png": png(7),
            "a/one.cls": b"2\n",
            "a/one.json": b"{}",
            "b/one.png": png(8),
            "b/one.cls": b"0",
        },
    )
    turn(tmp_path / "in", tmp_path / "out", "shards")
    with np.load(tmp_path / "out" / "train-00000.npz") as shard:
        assert shard["images"][:, 0, 0, 0].tolist() == [7, 8] and shard["labels"].tolist() == [2, 0]
    assert describe(tmp_path / "out", NAME).classes == 3
    foreign_tar(tmp_path / "bad" / "x.tar", {"k.json": b"{}"})
    with pytest.raises(DatasetError, match=r"x\.tar, sample k has the parts json; needed are"):
        turn(tmp_path / "bad", tmp_path / "out2", "shards")


def test_an_array_of_python_objects_in_a_tar_is_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}]), allow_pickle=True)
    foreign_tar(tmp_path / "in" / "x.tar", {"k.npy": buffer.getvalue(), "k.cls": b"0"})
    with pytest.raises(DatasetError, match=r"x\.tar, sample k: an array of Python objects"):
        turn(tmp_path / "in", tmp_path / "out", "shards")


def test_the_records_frame_is_tensorflows(tmp_path: Path) -> None:
    """A record that TensorFlow wrote: b"test", its length and both masked checksums."""
    body = b"test"
    length = struct.pack("<Q", 4)
    mask = [((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF for crc in map(crc32c.crc32c, (length, body))]
    path = tmp_path / "x.tfrecord"
    whole = length + struct.pack("<I", mask[0]) + body + struct.pack("<I", mask[1])
    path.write_bytes(whole * 2)
    assert list(tfrecord_files._bodies(path)) == [body, body]
    for broken, told in (
        (whole + whole[:-1], "record 1: the file is cut off"),
        (whole[:13] + b"x" + whole[14:], "record 0: its bytes are not"),
        (b"\x01" + whole[1:], "record 0: the length's checksum"),
    ):
        path.write_bytes(broken)
        with pytest.raises(DatasetError, match=told):
            list(tfrecord_files._bodies(path))


def test_images_as_tensorflow_keeps_them_are_read(tmp_path: Path) -> None:
    example = tfrecord_files._example_class()()
    example.features.feature["image/encoded"].bytes_list.value.append(png(9))
    example.features.feature["image/class/label"].int64_list.value.append(4)
    record = tfrecord_files._record(example.features.feature, "x")
    assert record.label == 4 and record.array[:, 0, 0].tolist() == [9, 0, 0]


def test_an_example_is_spelt_as_tensorflow_spells_it() -> None:
    """Bytes by the wire format's rules: message 1, map entry 1, key "label", int64_list 3, packed value 7."""
    example = tfrecord_files._example_class()()
    example.features.feature["label"].int64_list.value.append(7)
    assert example.SerializeToString() == b"\n\x10\n\x0e\n\x05label\x12\x05\x1a\x03\n\x01\x07"


@pytest.mark.parametrize(("form", "module"), [("hdf5", "h5py"), ("tfrecord", "crc32c")])
def test_without_the_library_the_extra_is_named(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigurationError, match=rf"gpu-trainer\[{form}\]"):
        turn(images, tmp_path / "out", form)


def test_what_is_neither_is_refused(images: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"holds \.npz: shards .* convert to tar, hdf5 or tfrecord"):
        turn(images, tmp_path / "out", "shards")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigurationError, match="holds no files"):
        turn(tmp_path / "empty", tmp_path / "out", "tar")
    with pytest.raises(ConfigurationError, match="not an empty folder"):
        turn(images, images, "tar")
