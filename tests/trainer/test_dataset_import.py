"""Image folders, text and CIFAR archives become shards; what cannot be trusted is refused with the reason."""

from __future__ import annotations

import io
import pickle
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from trainer.contracts.manifests import DatasetManifest
from trainer.data.dataset import make_split
from trainer.data.importing import BYTE_SEPARATOR, Options, import_cifar, import_images, import_text
from trainer.data.manifest import DatasetName
from trainer.data.md5_list import read_md5_list, write_md5_list
from trainer.data.publish import describe
from trainer.data.sample import make_text_sample
from trainer.errors import ConfigurationError, DatasetError
from trainer.exit_codes import Exit

from trainer import cli

NAME = DatasetName("d", "v1")


def picture(path: Path, tone: int, size: tuple[int, int] = (6, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (tone, 2, 3)).save(path)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Forty pictures of each of two classes, whose red says which they are."""
    for number in range(40):
        picture(tmp_path / "pictures" / "ant" / f"{number}.png", number)
        picture(tmp_path / "pictures" / "bee" / f"{number}.png", 100 + number)
    return tmp_path / "pictures"


def tones(folder: Path, manifest: DatasetManifest, split: str) -> list[tuple[int, int]]:
    """Red of the first pixel, and label, of each sample."""
    samples = make_split(folder, manifest, split)
    batch = samples.take(np.arange(len(samples)))
    return list(zip(batch.images[:, 0, 0, 0].tolist(), batch.labels.tolist(), strict=True))


def test_a_folder_a_class_becomes_shards_of_a_bounded_size_in_mixed_order(
    pictures: Path, tmp_path: Path
) -> None:
    import_images(pictures, tmp_path / "out", Options(shard_bytes=1000))
    manifest = describe(tmp_path / "out", NAME)
    assert manifest.class_names == ["ant", "bee"] and manifest.sample_shape == [3, 4, 6]
    assert len(manifest.shards) > 4 and max(shard.samples for shard in manifest.shards) == 14
    train, test = (tones(tmp_path / "out", manifest, split) for split in ("train", "test"))
    assert sorted(train + test) == [(n, 0) for n in range(40)] + [(100 + n, 1) for n in range(40)]
    assert 0 < len(test) < 20
    assert {label for _, label in train[:14]} == {0, 1}, "no shard of one class alone"


def test_a_file_stays_in_its_split_whatever_is_added(pictures: Path, tmp_path: Path) -> None:
    import_images(pictures, tmp_path / "one", Options(test_share=0.3))
    picture(pictures / "ant" / "more.png", 99)
    import_images(pictures, tmp_path / "two", Options(test_share=0.3))
    one, two = (
        set(tones(tmp_path / name, describe(tmp_path / name, NAME), "test")) for name in ("one", "two")
    )
    assert one - two == set() and two - one <= {(99, 0)}


def test_the_sources_own_splits_are_kept(tmp_path: Path) -> None:
    picture(tmp_path / "in" / "train" / "ant" / "a.png", 1)
    picture(tmp_path / "in" / "val" / "ant" / "a.png", 2)
    import_images(tmp_path / "in", tmp_path / "out", Options(test_share=0))
    manifest = describe(tmp_path / "out", NAME)
    assert tones(tmp_path / "out", manifest, "train") == [(1, 0)]
    assert tones(tmp_path / "out", manifest, "test") == [(2, 0)]


def test_pictures_of_several_sizes_need_one_to_be_named(pictures: Path, tmp_path: Path) -> None:
    picture(pictures / "bee" / "large.png", 7, (60, 40))
    with pytest.raises(DatasetError, match=r"60 x 40 pixels.*6 x 4 pixels.*give --size PIXELS"):
        import_images(pictures, tmp_path / "out", Options(test_share=0))
    assert not (tmp_path / "out").exists()
    import_images(pictures, tmp_path / "out", Options(size=8, channels=1))
    assert describe(tmp_path / "out", NAME).sample_shape == [1, 8, 8]


def test_a_picture_that_is_cut_off_is_named(pictures: Path, tmp_path: Path) -> None:
    broken = pictures / "ant" / "7.png"
    broken.write_bytes(broken.read_bytes()[:50])
    with pytest.raises(DatasetError, match=r"ant/7\.png: not a readable image"):
        import_images(pictures, tmp_path / "out", Options())


def test_a_list_of_md5sum_is_checked_before_anything_is_imported(pictures: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list.md5"
    write_md5_list(listed, pictures, sorted(pictures.rglob("*.png")))
    options = Options(md5_list=listed)
    import_images(pictures, tmp_path / "good", options)
    picture(pictures / "ant" / "7.png", 8)
    with pytest.raises(DatasetError, match=r"ant/7\.png has MD5 \w{32}, .*list\.md5 says"):
        import_images(pictures, tmp_path / "bad", options)
    (pictures / "ant" / "7.png").unlink()
    with pytest.raises(DatasetError, match=r"ant/7\.png is missing"):
        import_images(pictures, tmp_path / "bad", options)
    picture(pictures / "ant" / "new.png", 8)
    with pytest.raises(DatasetError, match=r"new\.png is not in .*list\.md5"):
        import_images(pictures, tmp_path / "bad", options)


def test_lists_are_those_of_md5sum_itself(tmp_path: Path) -> None:
    names = ["plain", "with space", "line\nfeed", "back\\slash"]
    for name in names:
        (tmp_path / name).write_text(name)
    text = subprocess.run(["md5sum", *names], cwd=tmp_path, check=True, capture_output=True).stdout
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.write_bytes(text)
    write_md5_list(ours, tmp_path, [tmp_path / name for name in names])
    assert ours.read_bytes() == text
    assert list(read_md5_list(theirs)) == names
    theirs.write_text("no digest  file\n")
    with pytest.raises(ConfigurationError, match="line 1: is not of md5sum's form"):
        read_md5_list(theirs)


def test_text_becomes_its_bytes_with_a_separator_after_each_document(tmp_path: Path) -> None:
    source = tmp_path / "text"
    (source / "below").mkdir(parents=True)
    (source / "a.txt").write_text("Grüße aus Köln", encoding="utf-8")
    (source / "below" / "b.txt").write_bytes(b"second document")
    import_text(source, tmp_path / "out", Options(test_share=0, sequence_length=4))
    manifest = describe(tmp_path / "out", NAME)
    assert (manifest.vocabulary, manifest.separator, manifest.sequence_length) == (257, BYTE_SEPARATOR, 4)
    tokens = np.load(tmp_path / "out" / "train-00000.npy").tolist()
    ends = [place for place, token in enumerate(tokens) if token == BYTE_SEPARATOR]
    documents = {bytes(tokens[: ends[0]]), bytes(tokens[ends[0] + 1 : ends[1]])}
    assert documents == {"Grüße aus Köln".encode(), b"second document"} and len(ends) == 2


def test_of_a_single_document_the_end_is_held_out(tmp_path: Path) -> None:
    (tmp_path / "book.txt").write_bytes(b"a" * 800 + b"b" * 200)
    import_text(tmp_path / "book.txt", tmp_path / "out", Options(test_share=0.2, sequence_length=16))
    assert set(np.load(tmp_path / "out" / "test-00000.npy").tolist()) == {ord("b"), BYTE_SEPARATOR}


def test_a_source_too_small_for_one_sample_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("short")
    with pytest.raises(DatasetError, match="no training sample"):
        import_text(tmp_path / "note.txt", tmp_path / "out", Options())


def cifar(tmp_path: Path, files: dict[str, bytes]) -> Path:
    path = tmp_path / "cifar.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name, body in files.items():
            member = tarfile.TarInfo(f"cifar-batches/{name}")
            member.size = len(body)
            archive.addfile(member, io.BytesIO(body))
    return path


def records(*labels: tuple[int, ...]) -> bytes:
    return b"".join(bytes(label) + bytes([label[-1]]) * 3072 for label in labels)


@pytest.mark.parametrize(
    ("files", "classes"),
    [
        ({"data_batch_1.bin": records((3,), (1,)), "test_batch.bin": records((9,))}, 10),
        ({"train.bin": records((0, 3), (0, 1)), "test.bin": records((5, 9))}, 100),
    ],
)
def test_cifars_binary_version_is_read_from_its_archive(
    tmp_path: Path, files: dict[str, bytes], classes: int
) -> None:
    import_cifar(cifar(tmp_path, files), tmp_path / "out", Options())
    manifest = describe(tmp_path / "out", NAME)
    assert (manifest.classes, manifest.sample_shape) == (classes, [3, 32, 32])
    assert sorted(tones(tmp_path / "out", manifest, "train")) == [(1, 1), (3, 3)]
    assert tones(tmp_path / "out", manifest, "test") == [(9, 9)]


def test_cifars_pickles_are_not_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (exec, (f"open({str(tmp_path / 'sprung')!r}, 'w')",))

    source = cifar(tmp_path, {"data_batch_1": pickle.dumps(Trap()), "batches.meta": b""})
    code = cli.main(["dataset", "import", "cifar", str(source), str(tmp_path / "out")])
    message = capsys.readouterr().err
    assert code == Exit.CONFIGURATION and "take the binary version" in message and message.count("\n") == 1
    assert not (tmp_path / "sprung").exists()


def test_a_cifar_file_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    source = cifar(tmp_path, {"data_batch_1.bin": records((3,))[:-1]})
    with pytest.raises(DatasetError, match="no whole records of 3073"):
        import_cifar(source, tmp_path / "out", Options())


def test_a_folder_that_holds_something_is_left_alone(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="not an empty folder"):
        import_images(pictures, pictures, Options())
    import_images(pictures, tmp_path / "out", Options())
    assert sorted(path.suffix for path in (tmp_path / "out").iterdir()) == [".json", ".npz", ".npz"]
    assert not list(tmp_path.glob(".*"))


def test_without_pillow_the_extra_is_named(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigurationError, match=r"gpu-trainer\[images\]"):
        import_images(pictures, tmp_path / "out", Options())


def test_the_text_sample_is_true_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        make_text_sample(tmp_path / name, samples=50, test_samples=10, seed=seed)
    a, b, c = (describe(tmp_path / name, NAME) for name in "abc")
    assert a == b != c
    assert {shard.split: shard.samples for shard in a.shards} == {"train": 50, "test": 10}
    first = bytes(np.load(tmp_path / "a" / "train-00000.npy")[:400].clip(max=255).astype(np.uint8))
    assert b" plus " in first and b" is " in first
