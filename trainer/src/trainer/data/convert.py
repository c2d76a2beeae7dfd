"""Shards to and from what other tools read: tar files in WebDataset's layout, HDF5, TFRecord.

One file a shard, of the same name. A record is one image with its label, or a run of tokens: shards hold their tokens
as one stream, so a record has ``sequence_length`` of them and the next one goes on where it ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..contracts.manifests import DatasetFacts
from ..errors import ConfigurationError, DatasetError
from . import hdf5_files, tar_shards, tfrecord_files
from .formats import SUFFIXES, ImageShard, open_shard
from .importing import SPLIT_FOLDERS
from .pack import FACTS, SHARD_BYTES, ImagePacker, TokenPacker, new_folder
from .publish import read_facts
from .record import Record

Progress = Callable[[int, int], None]  # files done, files in all
MOST_CLASSES = 1 << 31


@dataclass(frozen=True)
class _Format:
    suffixes: tuple[str, ...]  # the first one is written
    read: Callable[[Path], Iterator[Record]]
    write: Callable[[Path, Iterable[Record]], None]


FORMATS = {
    "tar": _Format((".tar",), tar_shards.read, tar_shards.write),
    "hdf5": _Format((".h5", ".hdf5"), hdf5_files.read, hdf5_files.write),
    "tfrecord": _Format((".tfrecord", ".tfrecords"), tfrecord_files.read, tfrecord_files.write),
}


def convert(
    source: Path,
    target: Path,
    to: str,
    sequence_length: int | None,
    progress: Progress,
    shard_bytes: int = SHARD_BYTES,
) -> None:
    """``to``: "shards", or a name of FORMATS; what the source is its file names say.

    Raises ConfigurationError for a source that is neither, or a library that is missing, DatasetError naming the
    file that cannot be read.
    """
    if not source.is_dir():
        raise ConfigurationError(f"{source} is not a folder; give the folder that holds the files")
    files = sorted(
        p for p in source.iterdir() if p.is_file() and not p.name.startswith(".") and p.name != FACTS
    )
    suffixes = {path.suffix for path in files}
    found = next((name for name, it in FORMATS.items() if suffixes and suffixes <= set(it.suffixes)), None)
    if to != "shards" and suffixes and suffixes <= set(SUFFIXES):
        with new_folder(target) as folder:
            _export(files, folder, FORMATS[to], read_facts(source), progress)
    elif to == "shards" and found is not None:
        facts = read_facts(source)
        if sequence_length is not None:
            facts = facts.model_copy(update={"sequence_length": sequence_length})
        with new_folder(target) as folder:
            _import(files, folder, FORMATS[found], facts, progress, shard_bytes)
    else:
        kinds = ", ".join(sorted(suffixes)) or "no files"
        raise ConfigurationError(
            f"{source} holds {kinds}: shards (.npz or .npy) convert to tar, hdf5 or tfrecord, and files of one of "
            "those to shards"
        )


def _export(files: list[Path], target: Path, into: _Format, facts: DatasetFacts, progress: Progress) -> None:
    for done, path in enumerate(files, 1):
        into.write(target / f"{path.stem}{into.suffixes[0]}", _records(path, facts))
        progress(done, len(files))
    (target / FACTS).write_text(facts.to_json())


def _records(path: Path, facts: DatasetFacts) -> Iterator[Record]:
    shard = open_shard(path, facts)
    if isinstance(shard, ImageShard):
        for image, label in zip(shard.images, shard.labels, strict=True):
            yield Record(image, int(label))
    else:
        step = facts.sequence_length or len(shard.tokens)
        for first in range(0, len(shard.tokens), step):
            yield Record(shard.tokens[first : first + step])


def _import(
    files: list[Path],
    target: Path,
    source: _Format,
    facts: DatasetFacts,
    progress: Progress,
    shard_bytes: int,
) -> None:
    images: ImagePacker | None = None
    tokens: TokenPacker | None = None
    highest = 0
    for done, path in enumerate(files, 1):
        split = next((kind for name, kind in SPLIT_FOLDERS.items() if path.name.startswith(name)), "train")
        for place, record in enumerate(source.read(path)):
            where = f"{path}, record {place}"
            if record.label is not None:
                images = images or ImagePacker(target, shard_bytes)
                _check_image(record.array, record.label, where)
                images.add(split, record.array, record.label, where)
                highest = max(highest, record.label)
            elif record.array.dtype.kind in "ui" and record.array.ndim == 1 and len(record.array):
                if facts.sequence_length is None:
                    raise ConfigurationError(f"{path} holds tokens; give --sequence-length")
                tokens = tokens or TokenPacker(target, shard_bytes, sequence_length=facts.sequence_length)
                tokens.add(split, _as_tokens(record.array, where, facts.vocabulary))
                highest = max(highest, int(record.array.max()))
            else:
                raise DatasetError(f"{where}: neither an image with a label nor a run of tokens")
        if images is not None and tokens is not None:
            raise DatasetError(f"{path}: a dataset is of images or of tokens, not of both")
        if tokens is not None:
            tokens.flush(
                split
            )  # a file's end is a shard's end, so that what was exported comes back as it was
        progress(done, len(files))
    if tokens is not None:
        update = {} if facts.vocabulary else {"vocabulary": highest + 1}
        tokens.finish(facts.model_copy(update=update))
    elif images is not None:
        images.finish(facts.model_copy(update={} if facts.classes else {"classes": highest + 1}))
    else:
        raise DatasetError(f"{files[0].parent}: the files hold no record")


def _check_image(array: np.ndarray[Any, Any], label: int, where: str) -> None:
    if array.dtype != np.uint8 or array.ndim != 3:
        raise DatasetError(f"{where}: images must be uint8 [c, h, w], not {array.dtype} {list(array.shape)}")
    if not 0 <= label < MOST_CLASSES:
        raise DatasetError(f"{where}: label {label} is outside 0..{MOST_CLASSES - 1}")


def _as_tokens(array: np.ndarray[Any, Any], where: str, vocabulary: int | None) -> np.ndarray[Any, Any]:
    """uint16 where it holds the vocabulary, else uint32; raises DatasetError for a token that fits neither."""
    if array.dtype in (np.uint16, np.uint32):
        return array
    if int(array.min()) < 0 or int(array.max()) >= 2**32:
        raise DatasetError(f"{where}: tokens must be 0 .. 4294967295")
    small = vocabulary is not None and max(vocabulary, int(array.max())) <= 2**16
    return array.astype(np.uint16 if small else np.uint32)
