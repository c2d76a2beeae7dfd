"""Publishing a dataset version: shards first, the manifest last; what is published never changes."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from pydantic import ValidationError

from ..contracts.manifests import DatasetFacts, DatasetManifest, Shard
from ..contracts.node_document import DatasetLocation
from ..errors import ConfigurationError
from ..store import Progress, Store, sha256_of
from .formats import SUFFIXES, check_shard
from .manifest import IMAGES, MANIFEST, DatasetName, local_name, object_key
from .pack import FACTS
from .verify import local_manifest

SHARD_NAME = re.compile(r"(?P<split>train|test)-[A-Za-z0-9._-]+\.np[yz]")
PARALLEL_SHARDS = 4


def read_facts(source: Path) -> DatasetFacts:
    """``dataset.json`` of a folder of shards; none there: no facts. Raises ConfigurationError."""
    path = source / FACTS
    try:
        return DatasetFacts.from_json(path.read_bytes())
    except FileNotFoundError:
        return DatasetFacts()
    except (OSError, ValidationError) as error:
        raise ConfigurationError(f"{path}: {' '.join(str(error).split())}") from error


def describe(source: Path, name: DatasetName, facts: DatasetFacts | None = None) -> DatasetManifest:
    """The manifest of a folder of shards, images (``.npz``) or tokens (``.npy``); reads and hashes every shard.

    ``facts`` None: those of the folder's ``dataset.json``. Classes or vocabulary not given: the highest label or
    token found, plus one. Raises ConfigurationError for a folder that holds no training shards, shards of both
    formats or a file that is none, DatasetError for a shard that is not in the format.
    """
    if not source.is_dir():
        raise ConfigurationError(f"{source} is not a folder; give the folder that holds the shards")
    facts = facts or read_facts(source)
    paths = sorted(path for path in source.iterdir() if not path.name.startswith(".") and path.name != FACTS)
    shards, shapes, highest = [], {}, 0
    for path in paths:
        match = SHARD_NAME.fullmatch(path.name)
        if match is None:
            raise ConfigurationError(
                f"{path}: a shard is named train-*.npz or test-*.npz (tokens: .npy); move this file away"
            )
        if path.suffix != paths[0].suffix:
            raise ConfigurationError(
                f"{path}: a dataset is of images (.npz) or of tokens (.npy), not of both"
            )
        samples, shapes[path.name], value = check_shard(path, facts)
        highest = max(highest, value)
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
        raise ConfigurationError(f"{source} holds no train-*.npz or train-*.npy shard")
    first = shapes[shards[0].name]
    for shard_name, shape in shapes.items():
        if shape != first:
            raise ConfigurationError(
                f"{source / shard_name}: sample shape {shape}, the first shard's is {first}"
            )
    shard_format = SUFFIXES[paths[0].suffix]
    bound = "classes" if shard_format == IMAGES else "vocabulary"
    if getattr(facts, bound) is None:
        facts = facts.model_copy(update={bound: highest + 1})
    return DatasetManifest(
        **facts.model_dump(),
        name=name.name,
        version=name.version,
        format=shard_format,
        sample_shape=first,
        shards=shards,
    )


def manifest_of(folder: Path, name: DatasetName | None = None) -> DatasetManifest:
    """The folder's manifest; shards that were not published have none and are described, under ``name``.

    Raises what `local_manifest` and `describe` raise.
    """
    if (folder / MANIFEST).is_file():
        return local_manifest(folder)
    return describe(folder, name or local_name(folder))


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
