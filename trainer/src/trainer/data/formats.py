"""The two shard formats, each memory-mapped and read by row.

``npz-classification-v1``: an uncompressed ``.npz`` with ``images`` uint8 [n, c, h, w] and ``labels`` int64 [n].
``npy-tokens-v1``: a ``.npy`` of tokens, uint16 or uint32 [t]. Its samples are windows of sequence_length + 1 tokens
that begin every sequence_length tokens: a window's last target is the next one's first input, so that every token
but a shard's first is a target once. What is left at a shard's end makes no sample.

Uncompressed, so that arrays are mapped where they lie in the file.
"""

from __future__ import annotations

import io
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from ..contracts.manifests import DatasetFacts
from ..errors import ConfigurationError, DatasetError
from .manifest import IMAGES, TOKENS

Array = np.ndarray[Any, Any]
Kind = Literal["images", "tokens"]
KINDS: dict[str, Kind] = {IMAGES: "images", TOKENS: "tokens"}
SUFFIXES = {".npz": IMAGES, ".npy": TOKENS}
_LOCAL_HEADER_BYTES = 30  # of a zip member, before its name and extra field


@dataclass(frozen=True)
class ImageShard:
    images: Array  # uint8 [n, c, h, w]
    labels: Array  # int64 [n]

    def take(self, rows: Array) -> tuple[Array, Array]:
        """uint8 [rows, c, h, w] and int64 [rows]."""
        return self.images[rows], self.labels[rows]


@dataclass(frozen=True)
class TokenShard:
    tokens: Array  # [t]
    sequence_length: int

    def take(self, rows: Array) -> tuple[Array, Array]:
        """Inputs and targets, int64 [rows, sequence_length] each; a target is the token after its input."""
        windows = np.lib.stride_tricks.sliding_window_view(self.tokens, self.sequence_length + 1)
        taken = windows[rows * self.sequence_length].astype(np.int64)
        return taken[:, :-1], taken[:, 1:]


def open_shard(path: Path, facts: DatasetFacts) -> ImageShard | TokenShard:
    """Raises DatasetError when the file is none of its suffix's format."""
    if SUFFIXES.get(path.suffix) == TOKENS:
        return TokenShard(_tokens(path), facts.sequence_length or 1)
    return ImageShard(map_array(path, "images"), map_array(path, "labels"))


def windows_in(tokens: int, sequence_length: int) -> int:
    """Samples that a shard of so many tokens holds."""
    return max(0, (tokens - 1) // sequence_length)


def map_array(path: Path, member: str) -> Array:
    """One array of an uncompressed ``.npz``, memory-mapped read-only.

    Raises DatasetError when the file is no such archive, or holds the array compressed.
    """
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            info = archive.getinfo(f"{member}.npy")
            if info.compress_type != zipfile.ZIP_STORED:
                raise DatasetError(f"{path}: compressed; write shards with numpy.savez, not savez_compressed")
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
            skip = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            file.seek(info.header_offset + _LOCAL_HEADER_BYTES + skip)
            shape, order, dtype = _array_header(file)
            offset = file.tell()
        mapped = np.memmap(path, dtype, "r", offset, shape, order)
    except KeyError as error:
        raise DatasetError(f'{path}: no array "{member}"; a shard holds "images" and "labels"') from error
    except (zipfile.BadZipFile, ValueError, OverflowError, OSError) as error:
        raise DatasetError(f"{path}: not a readable .npz file: {error}") from error
    return np.asarray(mapped)  # the plain view: a memmap's own indexing costs microseconds a call


def array_of(body: bytes) -> Array:
    """The array of a ``.npy`` file, a view of its bytes: nothing is set aside for what a header claims.

    Raises ValueError.
    """
    file = io.BytesIO(body)
    shape, order, dtype = _array_header(file)
    try:
        return np.frombuffer(body, dtype, math.prod(shape), file.tell()).reshape(shape, order=order)
    except OverflowError as error:
        raise ValueError(f"its header claims an array of {list(shape)}") from error


def _array_header(file: IO[bytes]) -> tuple[tuple[int, ...], Literal["C", "F"], np.dtype[Any]]:
    """Shape, order and kind of what follows in the file; raises ValueError."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran_order, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise ValueError(f"version {version} of numpy's format; write plain numbers with numpy.save")
    if dtype.hasobject:
        raise ValueError("an array of Python objects; only numbers are read")
    return shape, "F" if fortran_order else "C", dtype


def _tokens(path: Path) -> Array:
    try:
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DatasetError(f"{path}: not a readable .npy file: {error}") from error
    tokens = np.asarray(mapped)
    if tokens.dtype not in (np.uint16, np.uint32) or tokens.ndim != 1:
        raise DatasetError(
            f"{path}: tokens must be uint16 or uint32 [t], not {tokens.dtype} {list(tokens.shape)}"
        )
    return tokens


def check_shard(path: Path, facts: DatasetFacts) -> tuple[int, list[int], int]:
    """Samples, sample shape and highest label or token of a shard; raises DatasetError when it is not right.

    Reads all labels or tokens. A bound that ``facts`` does not give is not checked.
    """
    if SUFFIXES.get(path.suffix) == TOKENS:
        return _check_tokens(path, facts)
    images, labels = map_array(path, "images"), map_array(path, "labels")
    if images.dtype != np.uint8 or images.ndim != 4:
        raise DatasetError(
            f"{path}: images must be uint8 [n, c, h, w], not {images.dtype} {list(images.shape)}"
        )
    if labels.dtype != np.int64 or labels.shape != images.shape[:1]:
        raise DatasetError(
            f"{path}: labels must be int64 [{len(images)}], not {labels.dtype} {list(labels.shape)}"
        )
    if len(images) == 0:
        raise DatasetError(f"{path}: holds no sample")
    lowest, highest, classes = int(labels.min()), int(labels.max()), facts.classes
    if lowest < 0 or (classes is not None and highest >= classes):
        raise DatasetError(f"{path}: labels {lowest}..{highest} are outside 0..{classes and classes - 1}")
    return len(images), list(images.shape[1:]), highest


def _check_tokens(path: Path, facts: DatasetFacts) -> tuple[int, list[int], int]:
    if facts.sequence_length is None:
        raise ConfigurationError(
            f"{path}: tokens need a sequence length; give --sequence-length, or sequenceLength in dataset.json"
        )
    tokens, length = _tokens(path), facts.sequence_length
    samples = windows_in(len(tokens), length)
    if samples == 0:
        raise DatasetError(
            f"{path}: {len(tokens)} tokens make no sample of {length} + 1; use a shorter sequence length"
        )
    highest = int(tokens.max())
    if facts.vocabulary is not None and highest >= facts.vocabulary:
        raise DatasetError(f"{path}: token {highest} is outside the vocabulary 0..{facts.vocabulary - 1}")
    return samples, [length + 1], highest
