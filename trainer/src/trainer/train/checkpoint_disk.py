"""A checkpoint on this node's disk: room and rights are tried before the first step; a folder is whole or not there."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CheckpointError
from ..store import fsync_dir

PROBE_BYTES = 1 << 20


def folder_name(step: int) -> str:
    return f"step-{step:08d}"


def prepare_disk(folder: Path, expected_bytes: int, copies: int) -> None:
    """Make the folder, take away what a killed save left, write a probe and read it back.

    Raises CheckpointError where that fails, or where ``copies`` checkpoints of ``expected_bytes`` do not fit, together
    with those that lie there: so many there are at a time, since an old one stays until the new one is complete.
    """
    probe = folder / "probe.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for left_over in folder.glob("step-*.tmp"):
            shutil.rmtree(left_over)
        missing = max(1, copies - len(list(folder.glob("step-*"))))
        free = shutil.disk_usage(folder).free
        body = os.urandom(PROBE_BYTES)
        with open(probe, "wb") as file:
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        is_right = probe.read_bytes() == body
        probe.unlink()
    except OSError as error:
        raise CheckpointError(
            f"checkpoints cannot be written to {folder}: {error}; {_remedy(error)}"
        ) from error
    if not is_right:
        raise CheckpointError(f"{folder} gives back other bytes than were written: replace the disk")
    if free < missing * expected_bytes:
        raise CheckpointError(
            f"{folder} has {free / 2**30:.1f} GiB free; {missing} more checkpoints of this model need "
            f"{missing * expected_bytes / 2**30:.1f} GiB, and up to {copies} lie there at a time: make room, ask for a "
            "larger disk, or lower checkpoint.keep"
        )


def part_folder(folder: Path, step: int) -> Path:
    """Where a checkpoint is written, until it is whole and has its good name."""
    return folder / (folder_name(step) + ".tmp")


def begin_folder(folder: Path, step: int) -> None:
    """Raises CheckpointError."""
    part = part_folder(folder, step)
    with telling_why(part, step):
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)


def finish_folder(folder: Path, step: int) -> Path:
    """Synced, renamed to ``step-<n>``. Raises CheckpointError; then nothing lies under the good name."""
    part, final = part_folder(folder, step), folder / folder_name(step)
    with telling_why(part, step):
        for inner in (*(path for path in part.iterdir() if path.is_dir()), part):
            fsync_dir(inner)
        if final.exists():  # an older generation's, on this node
            shutil.rmtree(final)
        os.replace(part, final)
        fsync_dir(folder)
    return final


@contextmanager
def telling_why(part: Path, step: int) -> Iterator[None]:
    """What the disk refuses is raised as CheckpointError, with what a person can do."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"checkpoint of step {step} cannot be written to {part}: {error}; {_remedy(error)}"
        ) from error


def _remedy(error: OSError) -> str:
    """What a person does about a disk that takes no checkpoint."""
    if error.errno == errno.EROFS:
        return "the disk is read-only: look at the node's kernel log, replace the node, then `trainer run resume`"
    return "free space there or ask for a larger disk, then `trainer run resume`"
