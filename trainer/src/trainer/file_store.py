"""`Store` over a folder: for a training on one machine that has no bucket. ``<root>/<bucket>/<key>`` is the object.

What the training asks of S3 holds here too: an object is whole or not there (written beside its place, then renamed),
and conditional writes exclude each other (a lock on the root). An ETag is the content's SHA-256.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import StoreError
from .store import (
    Fetched,
    Head,
    IntegrityError,
    Listed,
    MissingObjectError,
    Progress,
    Put,
    Store,
    fsync_dir,
    sha256_of,
)

_PART = ".part"


class FileStore(Store):
    def __init__(self, root: Path) -> None:
        """``root`` is made when something is written. Nothing of `Store`'s S3 client is used."""
        self._root = root

    def get(self, bucket: str, key: str) -> Fetched | None:
        try:
            body = self._path(bucket, key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise _fault("read", self._path(bucket, key), error) from error
        return Fetched(body, hashlib.sha256(body).hexdigest())

    def head(self, bucket: str, key: str) -> Head | None:
        path = self._path(bucket, key)
        if not path.is_file():
            return None
        digest = sha256_of(path)
        return Head(path.stat().st_size, digest, digest)

    def list_objects(self, bucket: str, prefix: str) -> list[Listed]:
        base = self._root / bucket
        files = (path for path in base.rglob("*") if path.is_file() and path.suffix != _PART)
        keys = ((path.relative_to(base).as_posix(), path) for path in files)
        return sorted(
            (Listed(key, path.stat().st_size) for key, path in keys if key.startswith(prefix)),
            key=lambda item: item.key,
        )

    def delete(self, bucket: str, key: str) -> None:
        path = self._path(bucket, key)
        path.unlink(missing_ok=True)
        for folder in path.parents:
            if folder == self._root / bucket or not _remove_if_empty(folder):
                return

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        *,
        only_if_absent: bool = False,
        only_if_etag: str | None = None,
    ) -> Put:
        path = self._path(bucket, key)
        with self._locked():
            there = self.get(bucket, key)
            if (only_if_absent and there) or (only_if_etag and (there is None or there.etag != only_if_etag)):
                return Put(False)
            part = path.with_name(path.name + _PART)
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                part.write_bytes(body)
                _rename(part, path)
            except OSError as error:
                raise _fault("write", path, error) from error
        return Put(True, hashlib.sha256(body).hexdigest())

    def upload(
        self, bucket: str, key: str, path: Path, sha256: str, progress: Progress | None = None
    ) -> None:
        """A second name of the same bytes where the file system can; else a copy, read back and hashed."""
        target = self._path(bucket, key)
        part = target.with_name(target.name + _PART)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            part.unlink(missing_ok=True)
            _link_or_copy(path, part)
            found = sha256_of(part)
            if found != sha256:
                raise IntegrityError(f"write {target}: SHA-256 {sha256} expected, {found} found")
            _rename(part, target)
        except OSError as error:
            raise _fault("write", target, error) from error
        if progress:
            progress(target.stat().st_size)

    def download(
        self,
        bucket: str,
        key: str,
        target: Path,
        size_bytes: int,
        sha256: str,
        progress: Progress | None = None,
    ) -> None:
        """What is there and right is kept. Raises MissingObjectError, IntegrityError, StoreError."""
        source = self._path(bucket, key)
        if not source.is_file():
            raise MissingObjectError(f"read {source}: there is no such file")
        size, found = source.stat().st_size, sha256_of(source)
        if (size, found) != (size_bytes, sha256):
            text = f"{size} bytes" if size != size_bytes else f"SHA-256 {found}"
            raise IntegrityError(
                f"{source} has {text}, its manifest says {size_bytes} bytes, SHA-256 {sha256}"
            )
        if not (target.is_file() and sha256_of(target) == sha256):
            part = target.with_name(target.name + _PART)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                part.unlink(missing_ok=True)
                _link_or_copy(source, part)
                _rename(part, target)
            except OSError as error:
                raise _fault("write", target, error) from error
        if progress:
            progress(size_bytes)

    def _path(self, bucket: str, key: str) -> Path:
        return self._root / bucket / key

    @contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            lock = open(self._root / ".lock", "w")  # noqa: SIM115
        except OSError as error:
            raise _fault("write", self._root, error) from error
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK):
            raise
        shutil.copyfile(source, target)


def _rename(part: Path, target: Path) -> None:
    with open(part, "rb") as file:
        os.fsync(file.fileno())
    os.replace(part, target)
    fsync_dir(target.parent)


def _remove_if_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def _fault(action: str, path: Path, error: OSError) -> StoreError:
    return StoreError(f"{action} {path}: {error.strerror or error}")
