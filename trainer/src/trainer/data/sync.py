"""Bringing a dataset version to this machine: parallel, verified, going on where it was."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..contracts.manifests import DatasetManifest, Shard
from ..contracts.node_document import DatasetLocation
from ..errors import DatasetError
from ..store import IntegrityError, MissingObjectError, Store
from .manifest import MANIFEST, fetch_manifest, object_key

PARALLEL_SHARDS = 4

SyncProgress = Callable[[int, int], None]  # bytes verified so far, bytes in all; called from several threads


def version_dir(data_dir: str | Path, name: str, version: str) -> Path:
    """Where a version lies below a node's data folder."""
    return Path(data_dir) / name / version


def read_dir(location: DatasetLocation | None, data_dir: str | Path, name: str, version: str) -> Path:
    """Where a node reads a version: its own copy, or the mounted folder."""
    if location is None or location.path is None:
        return version_dir(data_dir, name, version)
    return Path(location.path) / version


def sync_dataset(
    store: Store,
    location: DatasetLocation,
    name: str,
    version: str,
    target_dir: str | Path,
    progress: SyncProgress | None = None,
) -> DatasetManifest:
    """Make ``target_dir`` hold exactly the published version; returns its manifest.

    ``target_dir`` is usually ``version_dir(data_dir, name, version)``. Files that are there are hashed and
    kept when right (a disk that was empty after a stop, or a shard that rotted, is filled again); the
    manifest is written last, so that its presence means that everything was verified once. Raises
    DatasetError (exit code 20) naming the shard when an object is missing or its bytes are not the published
    ones, StoreError (21).
    """
    target = Path(target_dir)
    manifest = fetch_manifest(store, location, name, version)
    target.mkdir(parents=True, exist_ok=True)
    local_manifest = target / MANIFEST
    local_manifest.unlink(missing_ok=True)
    total = sum(shard.size_bytes for shard in manifest.shards)
    moved: list[int] = []  # append is atomic; a shared sum would not be

    def advance(size: int) -> None:
        moved.append(size)
        if progress:
            progress(min(sum(moved), total), total)

    def fetch(shard: Shard) -> None:
        key = object_key(location, version, shard.name)
        try:
            store.download(location.bucket, key, target / shard.name, shard.size_bytes, shard.sha256, advance)
        except (IntegrityError, MissingObjectError) as error:
            raise DatasetError(
                f"dataset {name}@{version}, shard {shard.name}: {error}; publish the data under a new version"
            ) from error

    with ThreadPoolExecutor(PARALLEL_SHARDS) as pool:
        list(pool.map(fetch, manifest.shards))
    part = local_manifest.with_name(MANIFEST + ".part")
    part.write_text(manifest.to_json())
    os.replace(part, local_manifest)
    return manifest
