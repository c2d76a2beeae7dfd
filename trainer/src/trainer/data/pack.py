"""Packing samples into shards of a bounded size: a bucket of many small files is slow to read and to verify."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..contracts.manifests import DatasetFacts
from ..errors import ConfigurationError, DatasetError

Array = np.ndarray[Any, Any]

FACTS = "dataset.json"  # what a folder of shards says of itself, see `DatasetFacts`
SHARD_BYTES = 32 << 20  # below 64 MiB S3 keeps a SHA-256 of the whole object


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder to write to, which is named ``target`` when it is whole; what a fault leaves of it is removed.

    Raises ConfigurationError where the target holds something already.
    """
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ConfigurationError(f"{target} is not an empty folder; give a new one")
    whole = Path(os.path.abspath(target))  # "." has no name to begin with
    part = whole.with_name(f".{whole.name}.part")
    shutil.rmtree(part, ignore_errors=True)  # of a process that was killed
    part.mkdir(parents=True)
    try:
        yield part
        os.replace(part, whole)
    finally:
        shutil.rmtree(part, ignore_errors=True)


@dataclass
class _Splits(ABC):
    """Shard files ``train-00000``, ``train-00001``, ... of each split in ``folder``, which is there and empty."""

    folder: Path
    shard_bytes: int = SHARD_BYTES
    written: dict[str, int] = field(default_factory=dict)  # split: shards
    waiting: dict[str, list[Any]] = field(default_factory=dict)
    waiting_bytes: dict[str, int] = field(default_factory=dict)

    def append(self, split: str, item: Any, size: int) -> None:
        self.waiting.setdefault(split, []).append(item)
        self.waiting_bytes[split] = self.waiting_bytes.get(split, 0) + size
        if self.waiting_bytes[split] >= self.shard_bytes:
            self.flush(split)

    def flush(self, split: str) -> None:
        items = self.waiting.pop(split, [])
        self.waiting_bytes[split] = 0
        if items:
            self.save(split, items)

    @abstractmethod
    def save(self, split: str, items: list[Any]) -> None:
        """One shard of what waited."""

    def write(self, split: str, suffix: str, save: Any) -> None:
        number = self.written.get(split, 0)
        with open(self.folder / f"{split}-{number:05d}{suffix}", "wb") as file:
            save(file)
        self.written[split] = number + 1

    def finish(self, facts: DatasetFacts) -> None:
        """Write what waits, then the facts. Raises DatasetError where no training sample came."""
        for split in list(self.waiting):
            self.flush(split)
        if "train" not in self.written:
            raise DatasetError(
                "no training sample was found: the source is too small, or all of it is held out"
            )
        (self.folder / FACTS).write_text(facts.to_json())


class ImagePacker(_Splits):
    """Images uint8 [c, h, w] with their labels, all of one shape, into ``.npz`` shards."""

    _shape: tuple[int, ...] | None = None

    def add(self, split: str, image: Array, label: int, where: str) -> None:
        """Raises DatasetError naming ``where`` for an image of another shape than the first."""
        shape = self._shape = self._shape or image.shape
        if image.shape != shape:
            raise DatasetError(
                f"{where}: {_size(image.shape)}, the first image is {_size(shape)}; "
                "give --size PIXELS to bring all to one size"
            )
        self.append(split, (image, label), image.nbytes)

    def save(self, split: str, items: list[tuple[Array, int]]) -> None:
        images = np.stack([image for image, _ in items])
        labels = np.array([label for _, label in items], dtype=np.int64)

        def save(file: IO[bytes]) -> None:
            np.savez(file, images=images, labels=labels)

        self.write(split, ".npz", save)


@dataclass
class TokenPacker(_Splits):
    """Runs of tokens, uint16 or uint32 [t], one after another into ``.npy`` shards; a long run is cut.

    A last shard of too few tokens for one sample is left out, as what is left at any shard's end is.
    """

    sequence_length: int = 1

    def add(self, split: str, tokens: Array) -> None:
        step = max(1, self.shard_bytes // tokens.itemsize)
        for first in range(0, len(tokens), step):
            piece = tokens[first : first + step]
            self.append(split, piece, piece.nbytes)

    def save(self, split: str, items: list[Array]) -> None:
        tokens = np.concatenate(items)
        if len(tokens) > self.sequence_length:
            self.write(split, ".npy", lambda file: np.save(file, tokens))


def _size(shape: tuple[int, ...]) -> str:
    channels, height, width = shape
    return f"{width} x {height} pixels with {channels} channel(s)"
