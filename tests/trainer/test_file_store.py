"""A folder in place of S3 keeps the promises that the training relies on."""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from trainer.errors import StoreError
from trainer.file_store import FileStore
from trainer.store import IntegrityError, MissingObjectError


def test_conditional_writes_exclude_each_other(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        puts = list(pool.map(lambda n: store.put("b", "k", b"%d" % n, only_if_absent=True), range(8)))
    assert sum(put.written for put in puts) == 1
    there = store.get("b", "k")
    assert there is not None and there.etag == next(put.etag for put in puts if put.written)
    assert not store.put("b", "k", b"x", only_if_etag="another").written
    moved = store.put("b", "k", b"x", only_if_etag=there.etag)
    assert moved.written and not store.put("b", "k", b"y", only_if_etag=there.etag).written
    assert not store.put("b", "absent", b"x", only_if_etag="any").written and store.get("b", "absent") is None


def test_what_was_sent_is_what_is_found_or_it_is_told(tmp_path: Path) -> None:
    store, source = FileStore(tmp_path / "store"), tmp_path / "state.pt"
    source.write_bytes(b"weights")
    digest = hashlib.sha256(b"weights").hexdigest()
    store.upload("b", "runs/r/step-1/state.pt", source, digest)
    store.put("b", "runs/r/latest", b"1")
    assert [(item.key, item.size_bytes) for item in store.list_objects("b", "runs/r/")] == [
        ("runs/r/latest", 1),
        ("runs/r/step-1/state.pt", 7),
    ]
    target = tmp_path / "node" / "state.pt"
    store.download("b", "runs/r/step-1/state.pt", target, 7, digest)
    assert target.read_bytes() == b"weights"
    source.unlink()  # a node's own copy: the object stays
    store.download("b", "runs/r/step-1/state.pt", target, 7, digest)

    with pytest.raises(IntegrityError, match="SHA-256"):
        store.upload("b", "other", target, "0" * 64)
    assert store.head("b", "other") is None
    store.put("b", "runs/r/step-1/state.pt", b"weightz")
    assert target.read_bytes() == b"weights"
    with pytest.raises(IntegrityError, match="its manifest says 7 bytes"):
        store.download("b", "runs/r/step-1/state.pt", tmp_path / "x", 7, digest)
    with pytest.raises(MissingObjectError):
        store.download("b", "absent", tmp_path / "x", 7, digest)

    store.delete("b", "runs/r/step-1/state.pt")
    store.delete("b", "runs/r/step-1/state.pt")
    assert not (tmp_path / "store" / "b" / "runs" / "r" / "step-1").exists()
    assert [item.key for item in store.list_objects("b", "")] == ["runs/r/latest"]


def test_a_disk_that_takes_nothing_is_a_fault_of_storage(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file where the folder should be")
    with pytest.raises(StoreError, match="store"):
        FileStore(tmp_path / "store").put("b", "k", b"x")
