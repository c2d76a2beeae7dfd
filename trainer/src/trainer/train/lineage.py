"""Which checkpoints of a run count, and fetching one: read-only, and no torch needed.

A checkpoint is complete if and only if its manifest exists. It is in the run's line of descent unless a newer
generation has fenced its writer off before it could move ``latest``.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ..contracts import keys
from ..contracts.manifests import CheckpointManifest, LatestPointer
from ..errors import CheckpointError
from ..store import Store

MANIFEST = "manifest.json"
STEP_FOLDER = re.compile(r"step-(\d{8})/")


@dataclass(frozen=True)
class Pointer:
    value: LatestPointer | None
    etag: str | None  # None: the object does not exist


@dataclass(frozen=True)
class Line:
    """The checkpoints of a run that a resume may use, newest first, and the pointers as they were read."""

    manifests: list[CheckpointManifest]
    broken: list[tuple[int, str]]  # steps whose manifest itself is not right, with the reason
    latest: Pointer
    best: Pointer


def manifest_sha256(manifest: CheckpointManifest) -> str:
    return hashlib.sha256(manifest.to_json().encode()).hexdigest()


def read_pointer(store: Store, bucket: str, key: str) -> Pointer:
    """Raises CheckpointError when the object is something else, StoreError."""
    fetched = store.get(bucket, key)
    if fetched is None:
        return Pointer(None, None)
    try:
        return Pointer(LatestPointer.from_json(fetched.body), fetched.etag)
    except ValidationError as error:
        raise CheckpointError(f"s3://{bucket}/{key} is not a checkpoint pointer: {error}") from error


def read_line(store: Store, bucket: str, run: str) -> Line:
    """Raises CheckpointError when a pointer is unreadable, StoreError."""
    latest = read_pointer(store, bucket, keys.latest(run))
    best = read_pointer(store, bucket, keys.best(run))
    manifests, broken = [], []
    for listed in reversed(store.list_objects(bucket, keys.checkpoints(run))):
        match = STEP_FOLDER.search(listed.key)
        if match is None or not listed.key.endswith(f"/{MANIFEST}"):
            continue
        fetched = store.get(bucket, listed.key)
        try:
            manifest = CheckpointManifest.from_json(fetched.body if fetched else b"")
        except ValidationError:
            broken.append((int(match[1]), "its manifest cannot be read"))
            continue
        head = latest.value
        if head and manifest.generation < head.generation and manifest.step > head.step:
            continue  # put by a writer that was fenced off before it could move `latest`
        named = head and (manifest.step, manifest.generation) == (head.step, head.generation)
        if head and named and manifest_sha256(manifest) != head.manifest_sha256:
            broken.append((manifest.step, "its manifest is not the one that `latest` names"))
            continue
        manifests.append(manifest)
    told = {manifest.step for manifest in manifests} | {step for step, _ in broken}
    if latest.value and latest.value.step not in told:
        broken.append((latest.value.step, "`latest` names it and its manifest is gone"))
    return Line(manifests, broken, latest, best)


def newest_complete(store: Store, bucket: str, run: str) -> CheckpointManifest | None:
    """The checkpoint that a resume would try first; None: the run has none yet."""
    line = read_line(store, bucket, run)
    return line.manifests[0] if line.manifests else None


def fetch_files(store: Store, bucket: str, manifest: CheckpointManifest, folder: Path) -> Path:
    """Download a checkpoint's files to ``folder`` and verify them; what is there and right is kept. Where the state
    lies below it.

    Raises IntegrityError or MissingObjectError when the checkpoint is not what its manifest says, StoreError.
    """
    for file in manifest.files:
        path = folder / file.name
        path.parent.mkdir(parents=True, exist_ok=True)
        key = keys.checkpoint(manifest.run, manifest.step, file.name)
        store.download(bucket, key, path, file.size_bytes, file.sha256)
    return (folder / manifest.files[0].name).parent
