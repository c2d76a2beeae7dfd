"""Names and manifests of datasets; no numpy, so that a machine can sync what it cannot read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ..contracts.manifests import DatasetManifest
from ..contracts.node_document import DatasetLocation
from ..errors import ConfigurationError, DatasetError
from ..store import Store

IMAGES = "npz-classification-v1"
TOKENS = "npy-tokens-v1"
MANIFEST = "manifest.json"


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


def local_name(folder: Path) -> DatasetName:
    """Of a folder of shards that was not published: its own, and version "local"."""
    letters = "".join(letter if letter.isalnum() else "-" for letter in folder.resolve().name.lower())
    return DatasetName(letters.strip("-") or "data", "local")


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
    if manifest.format not in (IMAGES, TOKENS):
        raise DatasetError(
            f'{where}: format "{manifest.format}" is unknown; this release reads {IMAGES} and {TOKENS}'
        )
    if manifest.format == TOKENS and (manifest.vocabulary is None or manifest.sequence_length is None):
        raise DatasetError(f"{where}: tokens without vocabulary or sequenceLength; publish it anew")
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
