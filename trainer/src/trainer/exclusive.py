"""Two runs on one machine: neither shares a GPU nor a folder with the other.

Locks are the kernel's (flock), so that they end with the last process of a run, also one that was killed. They hold
within one machine, and within one container: another one has another /tmp.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from .errors import ConfigurationError

# Not the temporary folder of the environment: a scheduler gives each job one of its own.
GPU_LOCKS = Path("/tmp/trainer-gpus")  # noqa: S108


@contextmanager
def hold(run: str, folder: Path | None, gpus: Sequence[str]) -> Iterator[list[int]]:
    """Holds the run's folder (made if it is not there) and its GPUs, by UUID; yields the locks' descriptors.

    A process that inherits them holds them too. Raises ConfigurationError that names the other run.
    """
    with ExitStack() as held:
        locks = []
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            lock = _open(folder, os.O_RDONLY)
            held.callback(os.close, lock)
            if not _locked(lock):
                raise ConfigurationError(
                    f"run {run} is under way in {folder}: wait for it or stop it, or begin another one with --run"
                )
            locks.append(lock)
        for gpu in gpus:
            lock = _gpu_lock(gpu)
            held.callback(os.close, lock)
            if not _locked(lock):
                other = os.pread(lock, 1000, 0).decode(errors="replace").strip()
                raise ConfigurationError(
                    f"GPU {gpu} is taken by {other or 'another run'}: give other GPUs with --devices, or wait for it"
                )
            os.truncate(lock, 0)
            os.pwrite(lock, f"run {run} (process {os.getpid()}, in {folder or Path.cwd()})\n".encode(), 0)
            locks.append(lock)
        yield locks


def _gpu_lock(gpu: str) -> int:
    """Any user of the machine may take it. One that is there is not made again: Linux refuses O_CREAT for another
    user's file in a folder like this (fs.protected_regular)."""
    path = GPU_LOCKS / gpu
    if not path.exists():
        GPU_LOCKS.mkdir(exist_ok=True)
        _for_all(GPU_LOCKS, 0o1777)
        os.close(_open(path, os.O_RDWR | os.O_CREAT))
        _for_all(path, 0o666)
    return _open(path, os.O_RDWR)


def _for_all(path: Path, mode: int) -> None:
    if path.stat().st_uid == os.getuid():
        path.chmod(mode)


def _open(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags, 0o666)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be opened to be locked: {error.strerror}") from error


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
