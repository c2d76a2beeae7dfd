"""What others keep their data in becomes shards: image folders, text files, CIFAR's binary archives.

Samples are mixed before they are packed, by a permutation that depends on the seed alone: shards that hold one class
each would leave a streamed run, which mixes within a window of shards, with batches of one class.
"""

from __future__ import annotations

import hashlib
import lzma
import re
import tarfile
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from ..contracts.manifests import DatasetFacts
from ..errors import ConfigurationError, DatasetError
from .images import SUFFIXES, decode, need_pillow
from .md5_list import check_md5_list
from .order import permuted
from .pack import SHARD_BYTES, ImagePacker, TokenPacker, new_folder

BYTE_VOCABULARY = 257  # the 256 bytes, and one more token between documents
BYTE_SEPARATOR = 256
DECODERS = 4
DECODED_AHEAD = 2 * DECODERS  # of the packer: a photograph has 40 MB
SPLIT_FOLDERS = {"train": "train", "test": "test", "val": "test", "valid": "test", "validation": "test"}

Progress = Callable[[int, int], None]  # items done, items in all


@dataclass(frozen=True)
class Options:
    test_share: float = 0.1  # 0 to 1: held out where the source itself has no split
    size: int | None = None  # pixels; none: images keep their size and must all have the same
    channels: int = 3
    sequence_length: int = 256
    seed: int = 0
    shard_bytes: int = SHARD_BYTES
    md5_list: Path | None = None


def _nothing(_done: int, _total: int) -> None:
    pass


def _is_test(name: str, share: float) -> bool:
    """By a hash of the name: a file stays on its side whatever else is added to the source."""
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    return int.from_bytes(digest[:8], "big") < share * 2**64


def _mixed(count: int, seed: int) -> list[int]:
    return permuted(np.arange(count), count, seed, 0).tolist() if count else []


def import_images(source: Path, target: Path, options: Options, progress: Progress = _nothing) -> None:
    """A folder a class, with PNG and JPEG files; or such folders below ``train/`` and ``test/`` (or ``val/``).

    Raises ConfigurationError for a folder of another layout, DatasetError naming the file that cannot be used.
    """
    need_pillow()
    files = _image_files(source)
    if options.md5_list is not None:
        check_md5_list(options.md5_list, source, [path for path, _, _ in files])
    has_splits = any(split is not None for _, split, _ in files)
    names = sorted({name for _, _, name in files})
    labels = {name: label for label, name in enumerate(names)}
    mixed = [files[place] for place in _mixed(len(files), options.seed)]
    with new_folder(target) as folder:
        packer = ImagePacker(folder, options.shard_bytes)
        decoded = _decoded([path for path, _, _ in mixed], options)
        for done, ((path, split, name), image) in enumerate(zip(mixed, decoded, strict=True), 1):
            if not has_splits:
                held_out = _is_test(path.relative_to(source).as_posix(), options.test_share)
                split = "test" if held_out else "train"
            packer.add(split or "train", image, labels[name], str(path))
            progress(done, len(mixed))
        packer.finish(DatasetFacts(classes=len(names), class_names=names))


def _decoded(paths: Sequence[Path], options: Options) -> Iterator[np.ndarray]:
    """The images in order, decoded by several threads, few of them ahead of whoever takes them."""
    with ThreadPoolExecutor(DECODERS) as pool:
        waiting: deque[Future[np.ndarray]] = deque()
        for path in paths:
            waiting.append(pool.submit(decode, path, str(path), options.size, options.channels))
            if len(waiting) > DECODED_AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _image_files(source: Path) -> list[tuple[Path, str | None, str]]:
    """Each file with its split (None: the source has none) and its class's name."""
    if not source.is_dir():
        raise ConfigurationError(f"{source} is not a folder; give the folder that holds one folder a class")
    folders = [path for path in sorted(source.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    splits = [path for path in folders if path.name in SPLIT_FOLDERS]
    found: list[tuple[Path, str | None, str]] = []
    if splits and len(splits) == len(folders):
        for split in splits:
            classes = [path for path in sorted(split.iterdir()) if path.is_dir()]
            found += [(p, SPLIT_FOLDERS[split.name], c.name) for c in classes for p in _images_below(c)]
    else:
        found = [(path, None, folder.name) for folder in folders for path in _images_below(folder)]
    if not found:
        raise ConfigurationError(
            f"{source} holds no PNG or JPEG files in folders; the layout is CLASS/FILE or train/CLASS/FILE"
        )
    return found


def _images_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file())


def import_text(source: Path, target: Path, options: Options, progress: Progress = _nothing) -> None:
    """A ``.txt`` file, or all below a folder, each one document; its UTF-8 bytes are the tokens.

    Held out are whole documents, or of a single one its end. Raises ConfigurationError where there is no text.
    """
    root = source if source.is_dir() else source.parent
    files = sorted(source.rglob("*.txt")) if source.is_dir() else [source]
    if not files or not all(path.is_file() for path in files):
        raise ConfigurationError(f"{source}: no text found; give a text file or a folder of *.txt files")
    if options.md5_list is not None:
        check_md5_list(options.md5_list, root, files)
    with new_folder(target) as folder:
        packer = TokenPacker(folder, options.shard_bytes, sequence_length=options.sequence_length)
        for done, place in enumerate(_mixed(len(files), options.seed), 1):
            path = files[place]
            count = path.stat().st_size + 1
            cut = 0 if _is_test(path.relative_to(root).as_posix(), options.test_share) else count
            if len(files) == 1:
                cut = count - round(count * options.test_share)
            with open(path, "rb") as file:
                for tokens in _tokens(file, options.shard_bytes // 2):
                    packer.add("train", tokens[:cut])
                    packer.add("test", tokens[cut:])
                    cut = max(0, cut - len(tokens))
            progress(done, len(files))
        packer.finish(text_facts(options.sequence_length))


def _tokens(file: IO[bytes], most: int) -> Iterator[np.ndarray]:
    """A document's tokens, so many at a time: one file may be larger than the memory."""
    while block := file.read(max(1, most)):
        yield np.frombuffer(block, np.uint8).astype(np.uint16)
    yield tokens_of(b"")


def tokens_of(document: bytes) -> np.ndarray:
    """uint16 [bytes + 1]: the bytes, and the separator behind them."""
    tokens = np.empty(len(document) + 1, np.uint16)
    tokens[:-1] = np.frombuffer(document, np.uint8)
    tokens[-1] = BYTE_SEPARATOR
    return tokens


def text_facts(sequence_length: int) -> DatasetFacts:
    return DatasetFacts(vocabulary=BYTE_VOCABULARY, separator=BYTE_SEPARATOR, sequence_length=sequence_length)


CIFAR_BATCH = re.compile(r"(data_batch_\d+|train|test_batch|test)\.bin")
CIFAR_PICKLE = re.compile(r"data_batch_\d+|test_batch|train|test|meta|batches\.meta")
CIFAR_PIXELS = 3 * 32 * 32
CIFAR_NAMES = ("batches.meta.txt", "fine_label_names.txt")
CIFAR_LARGEST_BYTES = 50_000 * (
    2 + CIFAR_PIXELS
)  # train.bin of CIFAR-100; a small archive may claim any size


def import_cifar(source: Path, target: Path, options: Options, progress: Progress = _nothing) -> None:
    """CIFAR-10 or CIFAR-100 in the binary version, as ``.tar.gz`` or unpacked; 100: the fine labels.

    A record is one label byte (100: coarse, then fine) and 3072 bytes of red, green and blue rows (the data set's own
    page). The python version is pickles, and reading a pickle runs what its maker put there: refused.
    """
    members = dict(_cifar_members(source))
    batches = {name: data for name, data in members.items() if CIFAR_BATCH.fullmatch(name)}
    if not batches:
        if any(CIFAR_PICKLE.fullmatch(name) for name in members):
            raise ConfigurationError(
                f"{source} is the python version: pickles, which can run any code when they are read; "
                "take the binary version (cifar-10-binary.tar.gz, cifar-100-binary.tar.gz)"
            )
        raise ConfigurationError(
            f"{source} holds no data_batch_*.bin or train.bin; give CIFAR's binary version"
        )
    label_bytes = 2 if "train.bin" in batches else 1
    names = next((members[name].decode("latin-1").split() for name in CIFAR_NAMES if name in members), [])
    classes = len(names) or (100 if label_bytes == 2 else 10)
    records: dict[str, list[np.ndarray]] = {}
    for name, data in sorted(batches.items()):
        width = label_bytes + CIFAR_PIXELS
        if len(data) == 0 or len(data) % width:
            raise DatasetError(
                f"{source}, {name}: {len(data)} bytes are no whole records of {width}; fetch it again"
            )
        split = "test" if name.startswith("test") else "train"
        records.setdefault(split, []).append(np.frombuffer(data, np.uint8).reshape(-1, width))
    total = sum(len(batch) for parts in records.values() for batch in parts)
    done = 0
    with new_folder(target) as folder:
        packer = ImagePacker(folder, options.shard_bytes)
        for split, parts in records.items():
            rows = np.concatenate(parts)
            for place in _mixed(len(rows), options.seed):
                row = rows[place]
                label = int(row[label_bytes - 1])
                if label >= classes:
                    raise DatasetError(f"{source}: label {label} is outside 0..{classes - 1}")
                packer.add(split, row[label_bytes:].reshape(3, 32, 32), label, str(source))
                done += 1
            progress(done, total)
        packer.finish(DatasetFacts(classes=classes, class_names=names))


def _cifar_members(source: Path) -> Iterator[tuple[str, bytes]]:
    """Base name and content of each file; of pickles the name only."""
    if source.is_dir():
        for path in sorted(path for path in source.rglob("*") if path.is_file()):
            yield path.name, _cifar_content(path.name, path.stat().st_size, path.read_bytes, source)
        return
    try:
        with tarfile.open(source) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is not None:
                    name = Path(member.name).name
                    yield name, _cifar_content(name, member.size, file.read, source)
            while archive.fileobj is not None and archive.fileobj.read(1 << 20):
                pass  # gzip's own checksum comes last, and an archive's end lies before it
    except (OSError, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ConfigurationError(f"{source}: not a readable archive or folder: {error}") from error


def _cifar_content(name: str, size: int, read: Callable[[], bytes], source: Path) -> bytes:
    if not CIFAR_BATCH.fullmatch(name) and name not in CIFAR_NAMES:
        return b""
    if size > CIFAR_LARGEST_BYTES:
        raise DatasetError(
            f"{source}, {name}: {size} bytes, CIFAR's files have {CIFAR_LARGEST_BYTES} at most"
        )
    return read()
