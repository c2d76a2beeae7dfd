"""Tar shards in WebDataset's layout: members of one sample share the name before its first dot and are neighbours.

Written: ``00000000.npy`` (the array) and, for images, ``00000000.cls`` (the label as text). Read as well: images as
``png``, ``jpg`` or ``jpeg``. WebDataset's own default decoders read all of these.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..errors import DatasetError
from .formats import array_of
from .images import decode, need_pillow
from .record import Record

_ENCODED = ("png", "jpg", "jpeg")
_READ = (*_ENCODED, "npy", "cls")


def write(path: Path, records: Iterable[Record]) -> None:
    """The same bytes for the same records: no times, no owners."""
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for number, record in enumerate(records):
            buffer = io.BytesIO()
            np.save(buffer, record.array)
            _add(archive, f"{number:08d}.npy", buffer.getvalue())
            if record.label is not None:
                _add(archive, f"{number:08d}.cls", str(record.label).encode())


def _add(archive: tarfile.TarFile, name: str, body: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(body)
    archive.addfile(member, io.BytesIO(body))


def read(path: Path) -> Iterator[Record]:
    """Raises DatasetError naming file and sample. Nothing is unpacked: names only tell what belongs together."""
    key, parts = "", dict[str, bytes]()
    try:
        # Neither compressed nor sparse: a part is then as large as its bytes in the file.
        with tarfile.open(path, "r:") as archive:
            for member in archive:
                if member.issparse():
                    raise DatasetError(
                        f"{path}, {member.name}: a sparse member; write the file with plain ones"
                    )
                file = archive.extractfile(member) if member.isfile() else None
                if file is None:
                    continue
                folder, _, name = member.name.rpartition("/")
                stem, _, extension = name.partition(".")
                if (found := f"{folder}/{stem}") != key:
                    if parts:
                        yield _record(parts, f"{path}, sample {key.lstrip('/')}")
                    key, parts = found, {}
                extension = extension.lower()
                parts[extension] = file.read() if extension in _READ else b""
            if parts:
                yield _record(parts, f"{path}, sample {key.lstrip('/')}")
    except (OSError, EOFError, tarfile.TarError) as error:
        raise DatasetError(f"{path}: not a readable tar file: {error}") from error


def _record(parts: dict[str, bytes], where: str) -> Record:
    try:
        label = int(parts["cls"]) if "cls" in parts else None
        if "npy" in parts:
            return Record(array_of(parts["npy"]), label)
    except ValueError as error:
        raise DatasetError(f"{where}: {error}") from error
    encoded = next((parts[extension] for extension in _ENCODED if extension in parts), None)
    if encoded is None or label is None:
        raise DatasetError(
            f"{where} has the parts {', '.join(sorted(parts))}; needed are npy, or an image (png, jpg) and cls"
        )
    need_pillow()
    return Record(decode(encoded, where), label)
