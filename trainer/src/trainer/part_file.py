"""A file on its way: ranges that came are kept over a crash, and the file gets its name when its hash is right."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from threading import Lock

BLOCK_BYTES = 256 << 10  # hashed at a time: it stays in the processor's cache


def sha256_of(path: Path) -> str:
    with open(path, "rb", buffering=0) as file:
        digest = hashlib.sha256()
        _hash_range(digest, file.fileno(), 0, os.fstat(file.fileno()).st_size)
        return digest.hexdigest()


def _hash_range(digest: hashlib._Hash, file: int, start: int, end: int) -> None:
    block = memoryview(bytearray(min(BLOCK_BYTES, end - start)))
    while start < end and (size := os.preadv(file, [block[: end - start]], start)):
        digest.update(block[:size])
        start += size


def fsync_dir(path: Path) -> None:
    """Make a rename in ``path`` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class PartFile:
    """``<target>.part`` holds the bytes, ``<target>.part.ranges`` says of which object they are and which are there.

    Nothing is forced to the disk: what a power cut makes of it, the hash at the end tells. Safe from several threads.
    """

    def __init__(self, target: Path, size: int, range_bytes: int) -> None:
        """Opens what an earlier try left, as far as it fits; raises OSError."""
        self.etag: str | None = None  # of the object that the kept ranges are from; none: nothing is kept
        self._target, self._size, self._range_bytes = target, size, range_bytes
        self._part = target.with_name(target.name + ".part")
        self._journal = target.with_name(target.name + ".part.ranges")
        # A rest of less than half a range goes with the range before it.
        self._starts = range(0, max(1, size - range_bytes // 2), range_bytes) if size else range(0)
        self._done: set[int] = set()
        self._digest, self._hashed = hashlib.sha256(), 0  # of the file's first bytes, so many of them
        self._catching_up = False
        self._lock = Lock()
        target.parent.mkdir(parents=True, exist_ok=True)
        self._read_journal()
        self._file = os.open(self._part, os.O_RDWR | os.O_CREAT, 0o644)

    def _read_journal(self) -> None:
        try:
            header, *lines = self._journal.read_text().splitlines()
            etag, size, range_bytes = header.rsplit(" ", 2)
            fits = (int(size), int(range_bytes)) == (self._size, self._range_bytes)
            if fits and self._part.stat().st_size == self._size:
                self._done = {int(line) for line in lines} & set(self._starts)
                self.etag = etag
        except (OSError, ValueError):  # none there, or cut off by a crash
            self._done = set()

    def pin(self, etag: str) -> None:
        """From now on the ranges of this object are collected; what is kept of another one is dropped."""
        if etag == self.etag:
            return
        self.discard()
        self.etag = etag
        os.ftruncate(self._file, self._size)  # never to 0, after which ext4 writes a file out as it is closed
        self._journal.write_text(f"{etag} {self._size} {self._range_bytes}\n")

    def missing(self) -> list[tuple[int, int]]:
        """First byte and the byte behind the last one, of each range that is not there."""
        ends = [*self._starts[1:], self._size]
        return [(s, end) for s, end in zip(self._starts, ends, strict=True) if s not in self._done]

    def write(self, place: int, chunk: bytes) -> None:
        """Some bytes of a range; what comes in order from the first byte on is hashed on the way."""
        os.pwrite(self._file, chunk, place)
        if place == self._hashed:
            self._digest.update(chunk)
            self._hashed += len(chunk)
        elif place < self._hashed:  # a range that comes once more
            self._digest, self._hashed = hashlib.sha256(), 0

    def keep(self, start: int) -> None:
        """The range that begins at ``start`` is there."""
        with self._lock:
            self._done.add(start)
            with open(self._journal, "a") as journal:
                journal.write(f"{start}\n")
        self._catch_up()

    def _catch_up(self) -> None:
        """Hash what came before its turn while other ranges still come, so that at the end nothing is left to read.

        Before the first range that is not there nobody writes any more, behind it `write` hashes: they never meet.
        """
        while True:
            with self._lock:
                end = next((start for start in self._starts if start not in self._done), self._size)
                if self._catching_up or self._hashed >= end:
                    return
                self._catching_up = True
            try:
                _hash_range(self._digest, self._file, self._hashed, end)
                self._hashed = end
            finally:
                self._catching_up = False

    def finish(self, sha256: str) -> str:
        """Name the file where its SHA-256 is the given one; returns the one that was found."""
        _hash_range(self._digest, self._file, self._hashed, self._size)
        found = self._digest.hexdigest()
        if found == sha256:
            os.replace(self._part, self._target)
        self.discard()
        return found

    def discard(self) -> None:
        """Keep nothing of what came."""
        self.etag, self._done = None, set()
        self._digest, self._hashed = hashlib.sha256(), 0
        self._journal.unlink(missing_ok=True)

    def close(self) -> None:
        """What is there stays for the next try."""
        os.close(self._file)
        if self.etag is None:
            self._part.unlink(missing_ok=True)
