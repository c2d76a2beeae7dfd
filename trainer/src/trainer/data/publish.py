"""Publishing a dataset version: shards first, the manifest last; what is published never changes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..contracts.manifests import DatasetManifest, Shard
from ..contracts.node_document import DatasetLocation
from ..errors import ConfigurationError
from ..store import Progress, Store, sha256_of
from .manifest import FORMAT, MANIFEST, DatasetName, check_shard, object_key

SHARD_NAME = re.compile(r"(?P<split>train|test)-[A-Za-z0-9._-]+\.npz")
PARALLEL_SHARDS = 4


def describe(source: Path, name: DatasetName, classes: int | None = None) -> DatasetManifest:
    """The manifest of a folder of shards ``train-*.npz`` and ``test-*.npz``; reads and hashes every shard.

    ``classes`` None: the highest label found, plus one. Raises ConfigurationError for a folder that holds no
    training shards or a file that is none, DatasetError for a shard that is not in the format.
    """
    if not source.is_dir():
        raise ConfigurationError(f"{source} is not a folder; give the folder that holds the shards")
    paths = sorted(path for path in source.iterdir() if not path.name.startswith("."))
    shards, shapes, highest = [], {}, 0
    for path in paths:
        match = SHARD_NAME.fullmatch(path.name)
        if match is None:
            raise ConfigurationError(
                f"{path}: a shard is named train-*.npz or test-*.npz; move this file away"
            )
        samples, shapes[path.name], label = check_shard(path, classes)
        highest = max(highest, label)
        shards.append(
            Shard(
                name=path.name,
                size_bytes=path.stat().st_size,
                sha256=sha256_of(path),
                samples=samples,
                split=match["split"],
            )
        )
    if not any(shard.split == "train" for shard in shards):
        raise ConfigurationError(f"{source} holds no train-*.npz shard")
    first = shapes[shards[0].name]
    for shard_name, shape in shapes.items():
        if shape != first:
            raise ConfigurationError(
                f"{source / shard_name}: sample shape {shape}, the first shard's is {first}"
            )
    return DatasetManifest(
        name=name.name,
        version=name.version,
        format=FORMAT,
        classes=highest + 1 if classes is None else classes,
        sample_shape=first,
        shards=shards,
    )


def publish_dataset(
    store: Store,
    location: DatasetLocation,
    source: Path,
    manifest: DatasetManifest,
    progress: Progress | None = None,
) -> None:
    """Upload what ``describe`` saw; an interrupted upload goes on where it was.

    Raises ConfigurationError when the version exists: versions are immutable, whoever trains on one trains on
    the same bytes for ever.
    """
    name = f"{manifest.name}@{manifest.version}"
    manifest_key = object_key(location, manifest.version, MANIFEST)
    taken = ConfigurationError(
        f"dataset {name} exists already (s3://{location.bucket}/{manifest_key}); choose another version"
    )
    if store.head(location.bucket, manifest_key) is not None:
        raise taken

    def send(shard: Shard) -> None:
        key = object_key(location, manifest.version, shard.name)
        head = store.head(location.bucket, key)
        if head is not None and (head.size_bytes, head.sha256) == (shard.size_bytes, shard.sha256):
            if progress:
                progress(shard.size_bytes)
            return
        store.upload(location.bucket, key, source / shard.name, shard.sha256, progress)

    with ThreadPoolExecutor(PARALLEL_SHARDS) as pool:
        list(pool.map(send, manifest.shards))
    text = manifest.to_json().encode()
    if not store.put(location.bucket, manifest_key, text, only_if_absent=True).written:
        raise taken
