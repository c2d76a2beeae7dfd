"""Checkpoints that exist completely or not at all, in one line of descent.

A save: write to a temporary folder, fsync, rename; upload and prove the upload; write the manifest (now the
checkpoint exists); move ``latest``; prune. Killed anywhere in between, the run resumes from what is complete.

Fencing: state files carry the generation in their name, so that no writer touches another's bytes. A term
begins by rewriting ``latest`` under the new generation (If-Match on what was read); every later move is
If-Match on the own last value. A writer of an older generation is refused there and ends. A manifest that
such a writer had already put ahead of ``latest`` is not in the line (`lineage`); a newer generation replaces
it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import pickle
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path

import torch
from pydantic import ValidationError

from .. import __version__
from ..contracts import keys
from ..contracts.manifests import CheckpointFile, CheckpointManifest, LatestPointer
from ..contracts.run import RunConfig
from ..errors import CheckpointError, ConfigurationError, FencedError
from ..store import IntegrityError, MissingObjectError, Store, StoreError, sha256_of
from .checkpoint_disk import folder_name, prepare_disk, write_folder
from .lineage import MANIFEST, STEP_FOLDER, fetch_files, manifest_sha256, read_line, read_pointer
from .state import Plain

_log = logging.getLogger(__name__)

Fallback = Callable[[int, str], None]  # step of an unusable checkpoint, why


class UnreadableError(Exception):
    """The bytes are the published ones and yet no state can be read from them."""


def config_sha256(config: RunConfig) -> str:
    return hashlib.sha256(config.to_json().encode()).hexdigest()


class Checkpoints:
    """One generation's hold on a run's checkpoints. Rank 0 begins the term and saves; every rank may load."""

    def __init__(
        self, store: Store, bucket: str, run: RunConfig, generation: int, world_size: int, local: Path
    ) -> None:
        self._store, self._bucket, self._run, self._local = store, bucket, run.name, local
        self._generation, self._world_size = generation, world_size
        self._config_sha256 = config_sha256(run)
        self._keep = run.training.checkpoint.keep
        self._never_resume = run.training.resume == "never"
        self._steps: list[int] = []  # of the line, oldest first
        self._newest: CheckpointManifest | None = None
        self._latest_etag: str | None = None
        self._best_etag: str | None = None
        self._best_step: int | None = None

    @property
    def newest_step(self) -> int | None:
        """Step of the newest complete checkpoint of the line; None: there is none."""
        return self._newest.step if self._newest else None

    def begin(self, expected_bytes: int, on_fallback: Fallback) -> tuple[CheckpointManifest, Plain] | None:
        """Find the newest usable checkpoint, fence older generations off, and return it with its state.

        None: a fresh start. Whether disk and bucket take a checkpoint is tried out first. Raises CheckpointError when
        they do not, when a save of ``expected_bytes`` would not fit twice on the disk, or when checkpoints exist and
        none is usable; ConfigurationError when resuming is forbidden; StoreError.
        """
        prepare_disk(self._local, expected_bytes)
        with ThreadPoolExecutor(1) as pool:  # beside the reading, which is what a resume waits for
            tried = pool.submit(self._try_store)
            found = self._find(on_fallback)
            tried.result()
        if found is not None:
            self._move_latest(found[0])
        return found

    def _find(self, on_fallback: Fallback) -> tuple[CheckpointManifest, Plain] | None:
        line = read_line(self._store, self._bucket, self._run)
        if line.manifests and self._never_resume:
            raise ConfigurationError(
                f"run {self._run} has a checkpoint of step {line.manifests[0].step} and resume is never: "
                "a fresh start would overwrite it; use resume auto or another name"
            )
        for step, why in line.broken:
            on_fallback(step, why)
        self._latest_etag, self._best_etag = line.latest.etag, line.best.etag
        for place, manifest in enumerate(line.manifests):
            try:
                state = self.load(manifest)
            except (IntegrityError, MissingObjectError, UnreadableError) as error:
                on_fallback(manifest.step, str(error))
                continue
            self._newest = manifest
            self._steps = [older.step for older in reversed(line.manifests[place:])]
            if line.best.value and line.best.value.step <= manifest.step:
                self._best_step = line.best.value.step
            return manifest, state
        if line.manifests or line.broken or line.latest.value:
            raise CheckpointError(
                f"run {self._run} has checkpoints below s3://{self._bucket}/{keys.checkpoints(self._run)} "
                "and none is usable; restore an older version of the objects, or start a run of another name"
            )
        return None

    def load(self, manifest: CheckpointManifest) -> Plain:
        """The state, from this node's disk where it is still right, else from the bucket.

        Raises IntegrityError, MissingObjectError, UnreadableError (all: try an older one), CheckpointError
        (written under another configuration), StoreError.
        """
        if manifest.config_sha256 != self._config_sha256:
            raise CheckpointError(
                f"checkpoint of step {manifest.step} was written under another configuration"
            )
        folder = self._local / folder_name(manifest.step)
        self._local.mkdir(parents=True, exist_ok=True)
        with open(self._local / "load.lock", "w") as lock:  # ranks of one node share the folder
            fcntl.flock(lock, fcntl.LOCK_EX)
            path = fetch_files(self._store, self._bucket, manifest, folder)[0]
            try:
                return torch.load(path, map_location="cpu", weights_only=True)
            except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError) as error:
                raise UnreadableError(
                    f"{path.name} cannot be read: {' '.join(str(error).split())}"
                ) from error

    def save(self, step: int, samples: int, epoch: float, state: Plain) -> CheckpointManifest:
        """Write, upload, prove, publish, point, prune. A step that is saved already is not saved again.

        Raises CheckpointError (disk, or a step below the newest complete one), FencedError, StoreError.
        """
        if self._newest is not None and step <= self._newest.step:
            if step == self._newest.step:
                return self._newest
            raise CheckpointError(
                f"step {step} is below the newest checkpoint, {self._newest.step}: not saved"
            )
        path = self._write_locally(step, state)
        sha256 = sha256_of(path)
        self._store.upload(self._bucket, keys.checkpoint(self._run, step, path.name), path, sha256)
        manifest = CheckpointManifest(
            run=self._run,
            step=step,
            generation=self._generation,
            samples_consumed=samples,
            epoch=epoch,
            world_size=self._world_size,
            config_sha256=self._config_sha256,
            trainer_version=__version__,
            files=[CheckpointFile(name=path.name, size_bytes=path.stat().st_size, sha256=sha256)],
            created_at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        self._publish(manifest)
        self._move_latest(manifest)
        self._newest = manifest
        self._steps.append(step)
        self._prune()
        return manifest

    def mark_best(self, manifest: CheckpointManifest, eval_loss: float) -> None:
        """Point ``best`` at a checkpoint of this term; pruning spares it from now on. Raises FencedError."""
        self._best_etag = self._move(keys.best(self._run), self._best_etag, manifest, eval_loss)
        self._best_step = manifest.step

    def _try_store(self) -> None:
        """A small object there, back and away: rights and ways that a save needs, before hours of work rest on them.

        Raises StoreError, CheckpointError.
        """
        key = keys.checkpoint_probe(self._run, self._generation)
        body = os.urandom(1024)
        self._store.put(self._bucket, key, body)
        back = self._store.get(self._bucket, key)
        self._store.delete(self._bucket, key)
        if back is None or back.body != body:
            raise CheckpointError(
                f"s3://{self._bucket}/{key} does not give back what was written; nothing can be saved"
            )

    def _write_locally(self, step: int, state: Plain) -> Path:
        name = f"state-g{self._generation:04d}.pt"

        def write(folder: Path) -> None:
            with open(folder / name, "wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())

        return write_folder(self._local, step, write) / name

    def _publish(self, manifest: CheckpointManifest) -> None:
        key = keys.checkpoint(self._run, manifest.step, MANIFEST)
        text = manifest.to_json().encode()
        if self._store.put(self._bucket, key, text, only_if_absent=True).written:
            return
        there = self._store.get(self._bucket, key)
        if there is not None and _generation_of(there.body) < self._generation:
            replaced = self._store.put(self._bucket, key, text, only_if_etag=there.etag)
            if replaced.written:
                return
        raise FencedError(f"s3://{self._bucket}/{key} was written by another generation; this one ends")

    def _move_latest(self, manifest: CheckpointManifest) -> None:
        self._latest_etag = self._move(keys.latest(self._run), self._latest_etag, manifest, None)

    def _move(
        self, key: str, etag: str | None, manifest: CheckpointManifest, eval_loss: float | None
    ) -> str | None:
        pointer = LatestPointer(
            step=manifest.step,
            generation=self._generation,
            manifest_sha256=manifest_sha256(manifest),
            eval_loss=eval_loss,
        )
        text = pointer.to_json().encode()
        put = self._store.put(self._bucket, key, text, only_if_absent=etag is None, only_if_etag=etag)
        if not put.written and etag is None:
            # Nothing was there to fence at this term's start; an older generation's first save came in between.
            rival = read_pointer(self._store, self._bucket, key)
            if rival.value is not None and rival.value.generation < self._generation:
                put = self._store.put(self._bucket, key, text, only_if_etag=rival.etag)
        if not put.written:
            raise FencedError(f"s3://{self._bucket}/{key} was moved by another generation; this one ends")
        return put.etag

    def _prune(self) -> None:
        """Drop what no resume needs, manifests first; what fails is told and tried again at the next save."""
        self._steps, dropped = self._steps[-self._keep :], self._steps[: -self._keep]
        wanted = {*self._steps, self._best_step}
        newest = self._steps[-1]
        try:
            listed = self._store.list_objects(self._bucket, keys.checkpoints(self._run))
            for item in sorted(listed, key=lambda item: not item.key.endswith(MANIFEST)):
                match = STEP_FOLDER.search(item.key)
                if match and int(match[1]) < newest and int(match[1]) not in wanted:
                    self._store.delete(self._bucket, item.key)
        except StoreError as error:
            _log.warning("old checkpoints were not removed (%s): %s", dropped, error)
        for folder in self._local.glob("step-*"):
            if folder.name not in {folder_name(step) for step in wanted if step is not None}:
                shutil.rmtree(folder, ignore_errors=True)


def _generation_of(manifest: bytes) -> int:
    """-1 for bytes that are no manifest."""
    try:
        return CheckpointManifest.from_json(manifest).generation
    except ValidationError:
        return -1
