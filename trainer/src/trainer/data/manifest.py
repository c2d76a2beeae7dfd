"""Reading manifests, and the one shard format that there is.

``npz-classification-v1``: an uncompressed ``.npz`` with ``images`` uint8 [n, c, h, w] and ``labels`` int64
[n]. Uncompressed, so that the arrays can be memory-mapped where they lie in the file.
"""

from __future__ import annotations

import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from ..contracts.manifests import DatasetManifest
from ..contracts.node_document import DatasetLocation
from ..errors import ConfigurationError, DatasetError
from ..store import Store

if TYPE_CHECKING:
    import numpy as np

FORMAT = "npz-classification-v1"
MANIFEST = "manifest.json"
_LOCAL_HEADER_BYTES = 30  # of a zip member, before its name and extra field


@dataclass(frozen=True)
class DatasetName:
    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def parse_name(text: str) -> DatasetName:
    """``name@version``; raises ConfigurationError."""
    match = re.fullmatch(r"([a-z0-9-]+)@([A-Za-z0-9._-]+)", text)
    if match is None:
        raise ConfigurationError(f'dataset "{text}": must be NAME@VERSION, for example shapes@v1')
    return DatasetName(match[1], match[2])


def object_key(location: DatasetLocation, version: str, file_name: str) -> str:
    return f"{location.prefix}{version}/{file_name}"


def parse_manifest(text: bytes, where: str) -> DatasetManifest:
    """Raises DatasetError when it is no manifest, or one of a format that this release cannot read."""
    try:
        manifest = DatasetManifest.from_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        raise DatasetError(f"{where} is not a dataset manifest: {path}: {first['msg']}") from error
    if manifest.format != FORMAT:
        raise DatasetError(f'{where}: format "{manifest.format}" is unknown; this release reads {FORMAT}')
    return manifest


def fetch_manifest(store: Store, location: DatasetLocation, name: str, version: str) -> DatasetManifest:
    """The manifest of a published version; raises DatasetError where there is none, StoreError."""
    key = object_key(location, version, MANIFEST)
    where = f"s3://{location.bucket}/{key}"
    fetched = store.get(location.bucket, key)
    if fetched is None:
        raise DatasetError(f"dataset {name}@{version} is not published: there is no {where}")
    manifest = parse_manifest(fetched.body, where)
    if (manifest.name, manifest.version) != (name, version):
        raise DatasetError(f"{where} describes {manifest.name}@{manifest.version}, not {name}@{version}")
    return manifest


def map_array(path: Path, member: str) -> np.ndarray[Any, Any]:
    """One array of an uncompressed ``.npz``, memory-mapped read-only.

    Raises DatasetError when the file is no such archive, or holds the array compressed.
    """
    import numpy as np

    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            info = archive.getinfo(f"{member}.npy")
            if info.compress_type != zipfile.ZIP_STORED:
                raise DatasetError(f"{path}: compressed; write shards with numpy.savez, not savez_compressed")
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER_BYTES)
            skip = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
            file.seek(info.header_offset + _LOCAL_HEADER_BYTES + skip)
            version = np.lib.format.read_magic(file)
            read_header = {
                (1, 0): np.lib.format.read_array_header_1_0,
                (2, 0): np.lib.format.read_array_header_2_0,
            }[version]
            shape, fortran_order, dtype = read_header(file)
            if dtype.hasobject:
                raise DatasetError(f'{path}: array "{member}" holds Python objects; only numbers are read')
            offset = file.tell()
    except KeyError as error:
        raise DatasetError(f'{path}: no array "{member}"; a shard holds "images" and "labels"') from error
    except (zipfile.BadZipFile, ValueError, OSError) as error:
        raise DatasetError(f"{path}: not a readable .npz file: {error}") from error
    return np.memmap(path, dtype, "r", offset, shape, "F" if fortran_order else "C")


def check_shard(path: Path, classes: int | None = None) -> tuple[int, list[int], int]:
    """Samples, sample shape and highest label of a shard; raises DatasetError when it is not right."""
    import numpy as np

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
    lowest, highest = int(labels.min()), int(labels.max())
    if lowest < 0 or (classes is not None and highest >= classes):
        raise DatasetError(f"{path}: labels {lowest}..{highest} are outside 0..{classes and classes - 1}")
    return len(images), list(images.shape[1:]), highest
