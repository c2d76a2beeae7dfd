"""Datasets that are read where they are mounted: without a copy, and never trained on when a byte is wrong.

A folder stands for the mount; that something is mounted there is made up.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from trainer.agent.prepare import data_dir
from trainer.contracts.manifests import DatasetManifest, Shard
from trainer.contracts.node_document import DatasetLocation, Scratch
from trainer.data import mounted
from trainer.data.sync import read_dir, version_dir
from trainer.errors import DatasetError
from trainer.store import Head

from tests.trainer.kit import Bench
from tests.trainer.test_disks import node_document


@dataclass
class Mounted:
    """A published version and the folder through which it is read."""

    bench: Bench
    location: DatasetLocation
    pauses: list[float] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return read_dir(self.location, "unused", "numbers", "v1")

    def open(self) -> DatasetManifest:
        return mounted.open_mounted(
            self.bench.store, self.location, "numbers", "v1", self.pauses.append, lambda path: "no server"
        )


@pytest.fixture
def mount(trained: Bench, monkeypatch: pytest.MonkeyPatch) -> Mounted:
    path = trained.root / "data" / "numbers"
    monkeypatch.setattr(os.path, "ismount", lambda at: Path(at) == path)
    location = trained.location.model_copy(update={"read_path": "mountpoint", "path": str(path)})
    return Mounted(trained, location)


def test_a_version_is_read_below_the_mount_and_a_copied_one_below_the_data_folder(mount: Mounted) -> None:
    assert mount.folder == Path(str(mount.location.path)) / "v1"
    copied = mount.bench.location
    assert read_dir(copied, "/data", "numbers", "v1") == version_dir("/data", "numbers", "v1")
    assert read_dir(None, "/data", "numbers", "v1") == version_dir("/data", "numbers", "v1")


def test_what_was_published_is_opened_without_a_copy(mount: Mounted) -> None:
    before = {path: path.stat().st_mtime_ns for path in mount.folder.iterdir()}
    assert [shard.name for shard in mount.open().shards] == [
        "test-0.npz",
        "train-0.npz",
        "train-1.npz",
        "train-2.npz",
    ]
    assert before == {path: path.stat().st_mtime_ns for path in mount.folder.iterdir()} and not mount.pauses


def test_where_nothing_is_mounted_the_reason_is_told(mount: Mounted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "ismount", lambda at: at == Path("/"))
    with pytest.raises(
        DatasetError, match=r"read through mountpoint, and nothing is mounted at .*: no server"
    ):
        mount.open()


def test_another_manifest_than_the_published_one_is_refused(mount: Mounted) -> None:
    manifest = mount.folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"samples":32', '"samples":31', 1))
    with pytest.raises(DatasetError, match=r"manifest\.json is not the published one"):
        mount.open()


def test_a_shard_of_another_size_is_refused(mount: Mounted) -> None:
    with open(mount.folder / "train-1.npz", "ab") as file:
        file.write(b"x")
    with pytest.raises(DatasetError, match=r"shard train-1\.npz has \d+ bytes, published were \d+"):
        mount.open()


def test_one_shard_is_read_through_the_mount_and_hashed(
    mount: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    rotten = mount.folder / "train-1.npz"
    rotten.write_bytes(b"\0" * rotten.stat().st_size)
    monkeypatch.setattr(
        mounted.random, "choice", lambda shards: next(s for s in shards if s.name == rotten.name)
    )
    with pytest.raises(DatasetError, match=r"train-1\.npz: read through mountpoint it has SHA-256"):
        mount.open()


def test_every_object_has_the_published_hash_as_s3_keeps_it(
    mount: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All shards are asked for, whichever is read. The emulated S3 tells no hash, so one is made up."""
    monkeypatch.setattr(
        mount.bench.store,
        "head",
        lambda bucket, key: Head(1, "etag", "0" * 64 if key.endswith("v1/train-2.npz") else None),
    )
    with pytest.raises(DatasetError, match=r"train-2\.npz: the object has SHA-256 0000"):
        mount.open()
    monkeypatch.setattr(mount.bench.store, "head", lambda bucket, key: None)
    with pytest.raises(DatasetError, match=r"test-0\.npz: no longer in s3://"):
        mount.open()


def test_a_shard_without_a_whole_hash_is_read_rather_than_another(
    mount: Mounted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 keeps none for what was uploaded in parts."""
    proved = {"test-0.npz", "train-0.npz", "train-1.npz"}
    monkeypatch.setattr(mounted, "_is_proved", lambda *about: about[-1].name in proved)
    offered: list[list[str]] = []

    def choose(shards: list[Shard]) -> Shard:
        offered.append([shard.name for shard in shards])
        return shards[0]

    monkeypatch.setattr(mounted.random, "choice", choose)
    mount.open()
    assert offered == [["train-2.npz"]]


def test_what_fsx_has_not_imported_yet_is_waited_for(mount: Mounted) -> None:
    """New objects show up in the file system after minutes."""
    lustre = Mounted(mount.bench, mount.location.model_copy(update={"read_path": "lustre"}))
    late = mount.folder / "train-0.npz"
    body = late.read_bytes()
    late.unlink()
    with pytest.raises(DatasetError, match=r"train-0\.npz is missing"):
        lustre.open()
    assert sum(lustre.pauses) == mounted.IMPORT_SECONDS
    lustre.pauses = Arriving(late, body)
    assert lustre.open().name == "numbers"
    assert lustre.pauses == [mounted.LOOK_AGAIN_SECONDS] * 2
    with pytest.raises(DatasetError, match=r"is missing"):
        late.unlink()
        mount.open()
    assert not mount.pauses, "S3 shows what it has at once"


class Arriving(list[float]):
    """Pauses, after the second of which the file is there."""

    def __init__(self, path: Path, body: bytes) -> None:
        self._path, self._body = path, body

    def append(self, seconds: float) -> None:
        super().append(seconds)
        if len(self) == 2:
            self._path.write_bytes(self._body)


class TestWhereCopiesLie:
    """On scratch space where there is some, else beside the agent's state."""

    @pytest.mark.parametrize("is_mounted", [True, False])
    def test_scratch_space_counts_only_while_it_is_mounted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mounted: bool
    ) -> None:
        (tmp_path / "scratch" / "trainer").mkdir(parents=True)
        monkeypatch.setattr(os.path, "ismount", lambda at: is_mounted)
        document = node_document(scratch=Scratch(owner="node", path=str(tmp_path / "scratch")))
        expected = tmp_path / "scratch" / "trainer" / "data" if is_mounted else tmp_path / "state" / "data"
        assert data_dir(document, tmp_path / "state") == expected

    def test_a_folder_that_is_not_there_is_not_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os.path, "ismount", lambda at: True)
        document = node_document(scratch=Scratch(owner="image", path=str(tmp_path)))
        assert data_dir(document, tmp_path / "state") == tmp_path / "state" / "data"

    def test_without_instance_store_there_is_nothing_to_ask(self, tmp_path: Path) -> None:
        assert data_dir(node_document(), tmp_path) == tmp_path / "data"
