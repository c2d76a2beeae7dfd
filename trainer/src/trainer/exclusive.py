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
            # A file of its own: NFS locks no folder.
            lock = _open(folder / ".lock", os.O_RDWR | os.O_CREAT)
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
    path = GPU_LOCKS / gpu.replace("/", "_")  # older drivers name a MIG part MIG-GPU-<uuid>/1/0
    if GPU_LOCKS.is_symlink():  # anybody can make one in /tmp, to have another's folder opened to all
        raise ConfigurationError(f"{GPU_LOCKS} is a link and must be a folder: remove it")
    if path.exists():
        return _open(path, os.O_RDWR)
    GPU_LOCKS.mkdir(exist_ok=True)
    if GPU_LOCKS.stat().st_uid == os.getuid():
        GPU_LOCKS.chmod(0o1777)
    lock = _open(path, os.O_RDWR | os.O_CREAT)
    if os.fstat(lock).st_uid == os.getuid():
        os.fchmod(lock, 0o666)
    return lock


def _open(path: Path, flags: int) -> int:
    """Never by a link: what is locked is written to."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be opened to be locked: {error.strerror}") from error


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigurationError(
            f"its file system takes no locks ({error.strerror}): choose a folder on another one with --run-dir"
        ) from error
    return True
