"""Is a synced dataset version still what was published?"""

from __future__ import annotations

from pathlib import Path

from ..contracts.manifests import DatasetManifest
from ..errors import DatasetError
from ..store import sha256_of
from .formats import check_shard
from .manifest import MANIFEST, parse_manifest


def local_manifest(folder: str | Path) -> DatasetManifest:
    """The manifest that a finished sync left; raises DatasetError where there is none."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        raise DatasetError(
            f"{folder} holds no published dataset version, or only a part of one (no {MANIFEST}): "
            "sync one into it; trainer dataset publish makes one of a folder of shards"
        )
    return parse_manifest(path.read_bytes(), str(path))


def verify_dataset(folder: str | Path) -> list[str]:
    """Hash every shard and look into it; one line a fault, none: all is as published.

    Raises DatasetError when the folder holds no manifest.
    """
    manifest = local_manifest(folder)
    faults = []
    for shard in manifest.shards:
        path = Path(folder) / shard.name
        if not path.is_file():
            faults.append(f"shard {shard.name} is missing")
        elif path.stat().st_size != shard.size_bytes:
            faults.append(
                f"shard {shard.name} has {path.stat().st_size} bytes, published were {shard.size_bytes}"
            )
        elif (found := sha256_of(path)) != shard.sha256:
            faults.append(f"shard {shard.name} has SHA-256 {found}, published was {shard.sha256}")
        else:
            try:
                samples, shape, _ = check_shard(path, manifest)
            except DatasetError as error:
                faults.append(f"shard {shard.name}: {error}")
                continue
            if samples != shard.samples or shape != manifest.sample_shape:
                faults.append(
                    f"shard {shard.name}: {samples} samples of {shape}, the manifest says otherwise"
                )
    return faults
