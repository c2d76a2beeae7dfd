"""HDF5 files, by h5py (extra ``hdf5``): datasets ``images`` and ``labels``, or ``tokens``, at the file's root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigurationError, DatasetError
from .record import Record

TOKENS_AT_ONCE = 1 << 20
MOST_COMPRESSION = 1100  # deflate makes at most 1032 bytes of one (zlib.net, "Maximum Compression Factor")


def _h5py() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ConfigurationError(
            "HDF5 files need h5py; install it beside the trainer: pip install 'gpu-trainer[hdf5]'"
        ) from error
    return h5py


def write(path: Path, records: Iterable[Record]) -> None:
    """All records of one shard; they fit memory, as a shard does."""
    h5py, kept = _h5py(), list(records)
    with h5py.File(path, "w", track_order=True) as file:
        if kept and kept[0].label is None:
            file.create_dataset("tokens", data=np.concatenate([record.array for record in kept]))
        else:
            file.create_dataset("images", data=np.stack([record.array for record in kept]))
            file.create_dataset("labels", data=np.array([record.label for record in kept], np.int64))


def read(path: Path) -> Iterator[Record]:
    """Raises DatasetError where neither tokens nor images with labels are found, or not in this very file."""
    h5py = _h5py()
    try:
        with h5py.File(path, "r") as file:
            if "tokens" in file:
                tokens = _dataset(h5py, file, "tokens", path)
                for first in range(0, len(tokens), TOKENS_AT_ONCE):
                    yield Record(tokens[first : first + TOKENS_AT_ONCE])
            elif "images" in file and "labels" in file:
                images, labels = (_dataset(h5py, file, name, path) for name in ("images", "labels"))
                if len(labels) != len(images) or labels.dtype.kind not in "ui" or labels.ndim != 1:
                    raise DatasetError(
                        f"{path}: labels must be whole numbers [{len(images)}], one an image, not {labels.dtype} "
                        f"{list(labels.shape)}"
                    )
                for place, label in enumerate(labels[:].tolist()):
                    yield Record(images[place], label)
            else:
                raise DatasetError(f'{path}: no datasets "images" and "labels", nor "tokens", at the root')
    except (OSError, RuntimeError) as error:
        raise DatasetError(f"{path}: not a readable HDF5 file: {error}") from error


def _dataset(h5py: Any, file: Any, name: str, path: Path) -> Any:
    """A file may name datasets of other files, and claim far more numbers than it has: neither is read."""
    link, found = file.get(name, getlink=True), file.get(name)
    if not isinstance(link, h5py.HardLink) or not isinstance(found, h5py.Dataset):
        raise DatasetError(f'{path}: "{name}" is no dataset of this file')
    if found.external or found.is_virtual:
        raise DatasetError(f'{path}: "{name}" lies in other files; convert the file that holds it')
    if found.ndim == 0 or found.nbytes > MOST_COMPRESSION * (found.id.get_storage_size() + 1024):
        raise DatasetError(
            f'{path}: "{name}" claims {found.dtype} {list(found.shape)} and has {found.id.get_storage_size()} bytes'
        )
    return found
