"""Files from outside that claim what they do not hold, or hold what is not theirs: one line, and nothing left."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import crc32c
import h5py
import numpy as np
import pytest
from PIL import Image
from trainer.data import importing, tfrecord_files
from trainer.data.convert import convert
from trainer.data.importing import Options, import_cifar, import_images, import_text
from trainer.data.manifest import IMAGES, parse_manifest
from trainer.data.pack import ImagePacker
from trainer.errors import ConfigurationError, DatasetError

MANY = 1 << 44  # of anything: more than a machine has


def tar_of(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as archive:
        for name, body in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))


def npy(array: np.ndarray[Any, Any]) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def claiming_npy(path: Path) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        buffer, {"descr": "|u1", "fortran_order": False, "shape": (3, MANY, MANY)}
    )
    tar_of(path, {"k.npy": buffer.getvalue(), "k.cls": b"0"})


def archive_of_arrays(path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, x=np.zeros(1, np.uint8))
    tar_of(path, {"k.npy": buffer.getvalue(), "k.cls": b"0"})


def flat_image(path: Path) -> None:
    tar_of(path, {"k.npy": npy(np.zeros((3, 4), np.uint8)), "k.cls": b"0"})


def endless_label(path: Path) -> None:
    tar_of(path, {"k.npy": npy(np.zeros((3, 4, 4), np.uint8)), "k.cls": b"9" * 30})


def zeros_out_of_nothing(path: Path) -> None:
    """GNU's old sparse form: a header alone says that a terabyte of zeros follows."""
    member = tarfile.TarInfo("k.npy")
    member.type = tarfile.GNUTYPE_SPARSE
    header = bytearray(member.tobuf(tarfile.GNU_FORMAT))
    header[386:482] = b"0" * 11 + b"\0" + b"0" * 11 + b"\0" + b"\0" * 72
    header[483:495] = b"\x80" + (1 << 40).to_bytes(11, "big")
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    path.write_bytes(bytes(header) + b"\0" * 1024)


def compressed(path: Path) -> None:
    flat_image(path)
    path.write_bytes(gzip.compress(path.read_bytes()))


def claiming_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (9, 3, 1 << 20, 1 << 20), np.uint8, chunks=(1, 3, 64, 64))
        file["labels"] = np.zeros(9, np.int64)


def another_files_hdf5(path: Path) -> None:
    with h5py.File(path.with_name(".other"), "w") as file:
        file["tokens"] = np.arange(99, dtype=np.uint16)
    with h5py.File(path, "w") as file:
        file["tokens"] = h5py.ExternalLink(".other", "/tokens")


def raw_bytes_hdf5(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("tokens", (50,), np.uint16, external=[("/etc/passwd", 0, 100)])


def labels_of_words(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["images"] = np.zeros((2, 3, 4, 4), np.uint8)
        file["labels"] = ["a", "b"]


def claiming_tfrecord(path: Path) -> None:
    length = struct.pack("<Q", MANY)
    path.write_bytes(length + struct.pack("<I", tfrecord_files._masked(crc32c.crc32c(length))) + b"x" * 9)


@pytest.mark.parametrize(
    ("name", "make", "told"),
    [
        ("x.tar", claiming_npy, r"sample k: .*(claims|smaller than requested)"),
        ("x.tar", archive_of_arrays, r"sample k: "),
        ("x.tar", flat_image, r"record 0: images must be uint8 \[c, h, w\], not uint8 \[3, 4\]"),
        ("x.tar", endless_label, r"record 0: label 9+ is outside 0\.\.2147483647"),
        ("x.tar", zeros_out_of_nothing, r"k\.npy: a sparse member"),
        ("x.tar", compressed, r"not a readable tar file"),
        ("x.h5", claiming_hdf5, r'"images" claims uint8 \[9, 3, 1048576, 1048576\] and has 0 bytes'),
        ("x.h5", another_files_hdf5, r'"tokens" is no dataset of this file'),
        ("x.h5", raw_bytes_hdf5, r'"tokens" lies in other files'),
        ("x.h5", labels_of_words, r"labels must be whole numbers \[2\]"),
        ("x.tfrecord", claiming_tfrecord, r"record 0: the file is cut off"),
    ],
)
def test_a_file_that_lies_is_one_line_and_leaves_nothing(
    tmp_path: Path, name: str, make: Any, told: str
) -> None:
    (tmp_path / "in").mkdir()
    make(tmp_path / "in" / name)
    with pytest.raises(DatasetError, match=told) as caught:
        convert(tmp_path / "in", tmp_path / "out", "shards", 8, lambda _done, _total: None)
    assert name in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_an_export_that_fails_half_way_can_simply_be_repeated(tmp_path: Path) -> None:
    shards = tmp_path / "shards"
    shards.mkdir()
    good = {"images": np.zeros((2, 3, 4, 4), np.uint8), "labels": np.zeros(2, np.int64)}
    np.savez(shards / "train-0.npz", **good)  # type: ignore[arg-type]
    (shards / "train-1.npz").write_bytes(b"no archive")
    with pytest.raises(DatasetError, match=r"train-1\.npz"):
        convert(shards, tmp_path / "out", "tar", None, lambda _done, _total: None)
    np.savez(shards / "train-1.npz", **good)  # type: ignore[arg-type]
    convert(shards, tmp_path / "out", "tar", None, lambda _done, _total: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "shards"]


def test_an_import_into_the_folder_one_is_in_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("a text " * 20)
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path / "out")
    import_text(tmp_path / "a.txt", Path(), Options(sequence_length=8))
    assert (tmp_path / "out" / "train-00000.npy").is_file()


def test_a_file_that_is_no_picture_whatever_its_name_is_never_given_to_another_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pillow hands PostScript to Ghostscript, which has run what it held."""
    (tmp_path / "in" / "a").mkdir(parents=True)
    Image.new("RGB", (9, 9)).save(tmp_path / "in" / "a" / "x.png", "EPS")
    monkeypatch.setattr("PIL.EpsImagePlugin.Ghostscript", lambda *_a, **_k: pytest.fail("was started"))
    with pytest.raises(DatasetError, match=r"x\.png: not a readable image"):
        import_images(tmp_path / "in", tmp_path / "out", Options())


def test_few_pictures_wait_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in" / "a").mkdir(parents=True)
    for number in range(60):
        Image.new("RGB", (4, 4)).save(tmp_path / "in" / "a" / f"{number}.png")
    decoded, ahead = [0], [0]
    decode, add = importing.decode, ImagePacker.add

    def counted(*arguments: Any) -> Any:
        decoded[0] += 1
        return decode(*arguments)

    def packed(packer: ImagePacker, *arguments: Any) -> None:
        ahead.append(decoded[0])
        decoded[0] -= 1
        add(packer, *arguments)

    monkeypatch.setattr(importing, "decode", counted)
    monkeypatch.setattr(ImagePacker, "add", packed)
    import_images(tmp_path / "in", tmp_path / "out", Options())
    assert len(ahead) == 61 and max(ahead) <= 16


@pytest.mark.parametrize("share", [0.0, 0.1])
def test_a_large_text_is_read_piece_by_piece_and_held_out_at_the_same_place(
    tmp_path: Path, share: float
) -> None:
    body = bytes(np.random.default_rng(1).integers(0, 256, 5003, np.uint8))
    (tmp_path / "a.txt").write_bytes(body)
    import_text(
        tmp_path / "a.txt", tmp_path / "out", Options(sequence_length=4, test_share=share, shard_bytes=400)
    )
    for split, wanted in (
        ("train", body[: 5004 - round(5004 * share)]),
        ("test", body[5004 - round(5004 * share) :]),
    ):
        shards = [np.load(path) for path in sorted((tmp_path / "out").glob(f"{split}-*.npy"))]
        found = np.concatenate(shards) if shards else np.empty(0)
        assert found[: len(wanted)].tolist() == list(wanted)[: len(found)]
        assert len(found) >= len(wanted) - 4 and all(shard.nbytes < 800 for shard in shards)


def test_a_small_archive_that_unpacks_to_a_large_file_is_refused(tmp_path: Path) -> None:
    member = tarfile.TarInfo("data_batch_1.bin")
    member.size = MANY
    (tmp_path / "cifar.tar.gz").write_bytes(gzip.compress(member.tobuf() + b"\0" * 4096))
    with pytest.raises(DatasetError, match=r"data_batch_1\.bin: 17592186044416 bytes, CIFAR's files have"):
        import_cifar(tmp_path / "cifar.tar.gz", tmp_path / "out", Options())


def test_an_archive_that_is_damaged_inside_is_one_line(tmp_path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 9, 3073 * 400, np.uint8).tobytes()
    tar_of(tmp_path / "x.tar", {"data_batch_1.bin": bytes(len(noise)) + noise})
    body = bytearray(gzip.compress((tmp_path / "x.tar").read_bytes()))
    middle = len(body) // 2
    body[middle : middle + 2000] = b"\xff" * 2000
    (tmp_path / "cifar.tar.gz").write_bytes(body)
    with pytest.raises(ConfigurationError, match="not a readable archive"):
        import_cifar(tmp_path / "cifar.tar.gz", tmp_path / "out", Options())


@pytest.mark.parametrize("name", ["../train-0.npz", "/etc/train-0.npz", "a/train-0.npz", "..", ".", ""])
def test_a_manifest_whose_shard_lies_elsewhere_is_refused(name: str) -> None:
    shard = {"name": name, "sizeBytes": 1, "sha256": "0" * 64, "samples": 1}
    text = json.dumps({"name": "d", "version": "v1", "format": IMAGES, "shards": [shard]})
    with pytest.raises(DatasetError, match=r"shards\.0\.name"):
        parse_manifest(text.encode(), "manifest.json")
