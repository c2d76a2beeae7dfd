"""HDF5 files, by h5py (extra ``hdf5``): datasets ``images`` and ``labels``, or ``tokens``, at the file's root."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigurationError, DatasetError
from .record import Record

TOKENS_AT_ONCE = 1 << 20


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
    """Raises DatasetError where neither tokens nor images with labels are found."""
    h5py = _h5py()
    try:
        with h5py.File(path, "r") as file:
            if "tokens" in file:
                tokens = file["tokens"]
                for first in range(0, len(tokens), TOKENS_AT_ONCE):
                    yield Record(tokens[first : first + TOKENS_AT_ONCE])
            elif "images" in file and "labels" in file:
                labels = file["labels"][:]
                if len(labels) != len(file["images"]):
                    raise DatasetError(f"{path}: {len(file['images'])} images with {len(labels)} labels")
                for place, label in enumerate(labels.tolist()):
                    yield Record(file["images"][place], int(label))
            else:
                raise DatasetError(f'{path}: no datasets "images" and "labels", nor "tokens", at the root')
    except OSError as error:
        raise DatasetError(f"{path}: not a readable HDF5 file: {error}") from error
