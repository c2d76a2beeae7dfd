"""The cache's store: each entry is a folder named by a hash of its inputs, and complete if it exists."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .places import cache
from .running import Failed, Work

KEY_LENGTH = 16
LOCK_LIMIT_SECONDS = 2400.0  # longer than the longest build of one entry


@dataclass(frozen=True)
class Entry:
    """One thing to build. `inputs` are all texts that, when changed, must give a new folder."""

    kind: str
    inputs: tuple[str, ...]

    @property
    def path(self) -> Path:
        digest = hashlib.sha256("\0".join((self.kind, *self.inputs)).encode()).hexdigest()
        return cache() / f"{self.kind}-{digest[:KEY_LENGTH]}"

    @property
    def log(self) -> Path:
        return cache() / "logs" / f"{self.kind}.log"


def provide(entry: Entry, work: Work, make: Callable[[Path], None]) -> Path:
    """The entry's folder, made by `make(folder)` if it is not there yet.

    `make` fills a sibling that is renamed when it is done, so that a build ended halfway leaves nothing that
    is taken for complete. One builder at a time holds the kind's lock; the kernel drops it with the process.
    """
    if entry.path.is_dir():
        return entry.path
    entry.log.parent.mkdir(parents=True, exist_ok=True)
    with _locked(entry.kind, work):
        if entry.path.is_dir():  # another run made it while this one waited
            return entry.path
        for left_over in cache().glob(f".{entry.kind}-*.partial"):
            shutil.rmtree(left_over, ignore_errors=True)
        partial = cache() / f".{entry.path.name}.partial"
        entry.log.unlink(missing_ok=True)
        with work.step(entry.kind, entry.log):
            make(partial)
        partial.rename(entry.path)
    return entry.path


@contextmanager
def _locked(kind: str, work: Work) -> Iterator[None]:
    lock = cache() / "locks" / f"{kind}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(lock, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        deadline = time.monotonic() + LOCK_LIMIT_SECONDS
        told = False
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    work.say(f"{kind}: another run is making it, waiting for that")
                    told = True
                if time.monotonic() > deadline:
                    raise Failed(
                        f"{kind}: another run has held {lock} for {LOCK_LIMIT_SECONDS:.0f} s"
                    ) from None
                work.pause(0.5)
        yield
    finally:
        os.close(descriptor)
