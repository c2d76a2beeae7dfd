"""A dataset version that is read where it is mounted, without a copy: is it what was published?

Reading everything once to hash it would be the copy that a mount is there to save. So all that can be known without
reading is checked for every shard, and one shard is read: the manifest in the mount equals the published one, every
shard has its size, S3's own hash of the object is the published one, and one shard's bytes hash to it through the
mount. Of a shard that went in parts S3 keeps no whole hash, it verified each part on arrival: such a one is read
rather than another. Whoever wants every byte hashed before training reads by `sync`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..contracts.manifests import DatasetManifest, Shard
from ..contracts.node_document import DatasetLocation
from ..disks.report import why_not_mounted
from ..errors import DatasetError
from ..store import Store, sha256_of
from .manifest import MANIFEST, fetch_manifest, object_key, parse_manifest
from .sync import read_dir

# FSx shows what S3 got within minutes, not at once: up to 17 were seen (peers of ai-on-eks).
IMPORT_SECONDS = 1200.0
LOOK_AGAIN_SECONDS = 15.0
PARALLEL_LOOKS = 16  # as many as the store's client keeps connections


def open_mounted(
    store: Store,
    location: DatasetLocation,
    name: str,
    version: str,
    sleep: Callable[[float], None] = time.sleep,
    why: Callable[[str], str] = why_not_mounted,
) -> DatasetManifest:
    """Its manifest, once the mount shows the published version.

    Raises DatasetError (20) where nothing is mounted or something else than the published version is, StoreError (21).
    """
    # From S3 first: a mount that was asked for a version too early could remember that there is none.
    manifest = fetch_manifest(store, location, name, version)
    folder = read_dir(location, "", name, version)
    if not _is_mounted(folder):
        raise DatasetError(
            f"dataset {name} is read through {location.read_path}, and nothing is mounted at {location.path}: "
            f"{why(str(location.path))}"
        )
    left = IMPORT_SECONDS if location.read_path == "lustre" else 0.0
    while (fault := _difference(folder, manifest)) is not None:
        if left <= 0:
            raise DatasetError(f"dataset {name}@{version} in {folder}: {fault}")
        sleep(LOOK_AGAIN_SECONDS)
        left -= LOOK_AGAIN_SECONDS
    with ThreadPoolExecutor(PARALLEL_LOOKS) as pool:  # one by one 100,000 shards would take an hour
        proved = list(
            pool.map(lambda shard: _is_proved(store, location, version, name, shard), manifest.shards)
        )
    unproved = [shard for shard, is_proved in zip(manifest.shards, proved, strict=True) if not is_proved]
    shard = random.choice(unproved or manifest.shards)  # another one on each node
    if (found := sha256_of(folder / shard.name)) != shard.sha256:
        raise DatasetError(
            f"dataset {name}@{version}, shard {shard.name}: read through {location.read_path} it has SHA-256 "
            f"{found}, published was {shard.sha256}; publish the data under a new version"
        )
    return manifest


def _is_mounted(folder: Path) -> bool:
    return any(os.path.ismount(part) for part in (folder, *folder.parents) if part != Path("/"))


def _difference(folder: Path, manifest: DatasetManifest) -> str | None:
    """What the mount shows otherwise than it was published; one line, None: nothing."""
    path = folder / MANIFEST
    try:
        if parse_manifest(path.read_bytes(), str(path)) != manifest:
            return f"{MANIFEST} is not the published one"
        for shard in manifest.shards:
            size = (folder / shard.name).stat().st_size
            if size != shard.size_bytes:
                return f"shard {shard.name} has {size} bytes, published were {shard.size_bytes}"
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"cannot be read: {error}"
    return None


def _is_proved(store: Store, location: DatasetLocation, version: str, name: str, shard: Shard) -> bool:
    """True where S3 itself holds the object with the published hash; DatasetError where it holds another."""
    head = store.head(location.bucket, object_key(location, version, shard.name))
    if head is None:
        raise DatasetError(
            f"dataset {name}@{version}, shard {shard.name}: no longer in s3://{location.bucket}"
        )
    if head.sha256 is not None and head.sha256 != shard.sha256:
        raise DatasetError(
            f"dataset {name}@{version}, shard {shard.name}: the object has SHA-256 {head.sha256}, published was "
            f"{shard.sha256}; publish the data under a new version"
        )
    return head.sha256 is not None
