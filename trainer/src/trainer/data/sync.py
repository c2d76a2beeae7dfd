"""Bringing a dataset version to this machine: parallel, verified, going on where it was."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from threading import Lock

from ..contracts.manifests import DatasetManifest, Shard
from ..contracts.node_document import DatasetLocation
from ..errors import ConfigurationError, DatasetError
from ..s3_client import PARALLEL
from ..store import IntegrityError, MissingObjectError, NoSpaceError, Store
from .manifest import MANIFEST, fetch_manifest, object_key

STREAMS = ".stream"
SPARE_BYTES = 256 << 20  # left free on the disk beside the dataset

SyncProgress = Callable[[int, int], None]  # bytes verified so far, bytes in all; called from several threads


def version_dir(data_dir: str | Path, name: str, version: str) -> Path:
    """Where a version lies below a node's data folder."""
    return Path(data_dir) / name / version


def read_dir(location: DatasetLocation | None, data_dir: str | Path, name: str, version: str) -> Path:
    """Where a node reads a version: its own copy, or the mounted folder."""
    if location is None or location.path is None:
        return version_dir(data_dir, name, version)
    return Path(location.path) / version


def stream_dir(data_dir: str | Path, run: str) -> Path:
    """What a streamed run keeps on a node: below it ``dataset`` (manifest, held-out shards) and ``gen-<n>``."""
    return Path(data_dir) / STREAMS / run


def drop_streams(data_dir: str | Path) -> None:
    """Remove what streamed runs keep on a node, none of which is under way any more."""
    shutil.rmtree(Path(data_dir) / STREAMS, ignore_errors=True)


def cache_bytes(manifest: DatasetManifest, window_shards: int) -> int:
    """What a streamed run's shards take at once: three windows of the largest, as long as no batch spans several."""
    sizes = sorted((shard.size_bytes for shard in manifest.shards if shard.split == "train"), reverse=True)
    return sum(sizes[: 3 * window_shards])


def sync_for_stream(
    store: Store, location: DatasetLocation, name: str, version: str, target_dir: Path, window_shards: int
) -> DatasetManifest:
    """What a streamed run needs before it starts: manifest and held-out shards; raises as `sync_dataset`."""
    return sync_dataset(
        store,
        location,
        name,
        version,
        target_dir,
        splits={"test"},
        room_bytes=lambda manifest: cache_bytes(manifest, window_shards),
    )


def sync_dataset(
    store: Store,
    location: DatasetLocation,
    name: str,
    version: str,
    target_dir: str | Path,
    progress: SyncProgress | None = None,
    splits: Collection[str] | None = None,
    room_bytes: Callable[[DatasetManifest], int] = lambda _manifest: 0,
) -> DatasetManifest:
    """Make ``target_dir`` hold the published version, or the ``splits`` of it that are named; returns its manifest.

    ``target_dir`` is usually ``version_dir(data_dir, name, version)``. Files that are there are hashed and kept when
    right (a disk that was empty after a stop, or a shard that rotted, is filled again), parts of files too; the
    manifest is written last, so that its presence means that everything was verified once. Raises DatasetError
    (exit code 20) naming the shard when an object is missing or its bytes are not the published ones, or when the
    disk is too small, StoreError (21). ``room_bytes``: what will be needed on the disk besides.
    """
    target, dataset = Path(target_dir), f"{name}@{version}"
    manifest = fetch_manifest(store, location, name, version)
    shards = [shard for shard in manifest.shards if splits is None or shard.split in splits]
    try:
        target.mkdir(parents=True, exist_ok=True)
        local_manifest = target / MANIFEST
        local_manifest.unlink(missing_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"{target}: cannot be written: {error.strerror}; choose another folder"
        ) from error
    _check_space(target, shards, dataset, room_bytes(manifest))
    total = sum(shard.size_bytes for shard in shards)
    lock, done = Lock(), 0

    def advance(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            if progress:
                progress(min(done, total), total)

    def fetch(shard: Shard) -> None:
        key = object_key(location, version, shard.name)
        try:
            store.download(location.bucket, key, target / shard.name, shard.size_bytes, shard.sha256, advance)
        except (IntegrityError, MissingObjectError) as error:
            raise DatasetError(
                f"dataset {dataset}, shard {shard.name}: {error}; publish the data under a new version"
            ) from error
        except NoSpaceError as error:
            raise DatasetError(f"dataset {dataset}, shard {shard.name}: {error}") from error

    pool = ThreadPoolExecutor(PARALLEL)
    try:
        for future in as_completed([pool.submit(fetch, shard) for shard in shards]):
            future.result()
    finally:
        pool.shutdown(cancel_futures=True)  # one fault ends it: no further shard is begun
    part = local_manifest.with_name(MANIFEST + ".part")
    part.write_text(manifest.to_json())
    os.replace(part, local_manifest)
    return manifest


def _check_space(target: Path, shards: list[Shard], dataset: str, more_bytes: int) -> None:
    """Before the first byte: a disk that runs full after hours has also cost those hours."""
    needed = more_bytes
    for shard in shards:
        for path in (target / shard.name, target / f"{shard.name}.part"):
            if path.is_file() and path.stat().st_size == shard.size_bytes:
                break  # there, or room for it is taken already
        else:
            needed += shard.size_bytes
    free = shutil.disk_usage(target).free
    if needed and needed + SPARE_BYTES > free:
        raise DatasetError(
            f"dataset {dataset} needs {needed / 1e9:.2f} GB more in {target}, where {free / 1e9:.2f} GB are free "
            f"({SPARE_BYTES / 1e9:.2f} GB must stay so); make room, or stream it (data: stream, streamWindowShards)"
        )
