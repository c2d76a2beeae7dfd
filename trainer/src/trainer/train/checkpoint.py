"""Checkpoints that exist completely or not at all, in one line of descent.

A save: each rank writes its part to a temporary folder of its node, fsync, rename; each node uploads its files and
proves the upload; rank 0 writes the manifest of all (now the checkpoint exists), moves ``latest``, prunes. Killed
anywhere in between, the run resumes from what is complete.

Fencing: state files lie below their generation's name, so that no writer touches another's bytes. A term
begins by rewriting ``latest`` under the new generation (If-Match on what was read), before it reads a state;
every later move is If-Match on the own last value. A writer of an older generation is refused there and ends. A
manifest that such a writer had already put ahead of ``latest`` is not in the line (`lineage`); a newer
generation replaces it.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from .. import __version__
from ..contracts import keys
from ..contracts.manifests import CheckpointFile, CheckpointManifest, LatestPointer
from ..contracts.run import RunConfig
from ..errors import CheckpointError, ConfigurationError, FencedError
from ..store import IntegrityError, MissingObjectError, Store, StoreError, sha256_of
from .checkpoint_disk import (
    begin_folder,
    finish_folder,
    folder_name,
    part_folder,
    prepare_disk,
    telling_why,
)
from .lineage import MANIFEST, STEP_FOLDER, Line, fetch_files, manifest_sha256, read_line, read_pointer
from .saved_state import SavedState, UnreadableError, write_state
from .state import Part
from .world import Writers

_log = logging.getLogger(__name__)

PARALLEL_FILES = 4  # of a node, hashed and uploaded at a time; each goes up in parallel parts besides
FENCE_TRIES = 8  # against a writer that saves again and again meanwhile
ALONE = Writers()

Fallback = Callable[[int, str], None]  # step of an unusable checkpoint, why
Restore = Callable[[SavedState], object]  # raises ValueError or KeyError where the state is of another model


def config_sha256(config: RunConfig) -> str:
    return hashlib.sha256(config.to_json().encode()).hexdigest()


class Checkpoints:
    """One generation's hold on a run's checkpoints. Rank 0 begins the term and publishes; every rank loads, and those
    that have a part of the state save it."""

    def __init__(
        self, store: Store, bucket: str, run: RunConfig, generation: int, world_size: int, local: Path
    ) -> None:
        self._store, self._bucket, self._run, self._local = store, bucket, run.name, local
        self._generation, self._world_size = generation, world_size
        self._name = f"g{generation:04d}"  # of the folder of state files
        self._config_sha256 = config_sha256(run)
        self._keep = run.training.checkpoint.keep
        # On a node's disk at a time: those that are kept, the new one, and the best.
        self._copies = self._keep + 1 + bool(run.training.eval_every_steps)
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

    def prepare(self, expected_bytes: int) -> None:
        """Try out this node's disk; raises CheckpointError, also where not all fit that lie there at a time."""
        prepare_disk(self._local, expected_bytes, self._copies)

    def begin(
        self, expected_bytes: int, on_fallback: Fallback, restore: Restore
    ) -> CheckpointManifest | None:
        """Find the newest usable checkpoint, ``restore`` its state, and fence older generations off.

        None: a fresh start. Whether disk and bucket take a checkpoint is tried out first. Raises CheckpointError when
        they do not, when saves of ``expected_bytes`` would not all fit on the disk, or when checkpoints exist and none
        is usable; ConfigurationError when resuming is forbidden; FencedError where a newer generation has begun;
        StoreError.
        """
        self.prepare(expected_bytes)
        with ThreadPoolExecutor(1) as pool:  # beside the reading, which is what a resume waits for
            tried = pool.submit(self._try_store)
            found = self._find(on_fallback, restore)
            tried.result()
        return found

    def _find(self, on_fallback: Fallback, restore: Restore) -> CheckpointManifest | None:
        line = self._fenced_line()
        if line.manifests and self._never_resume:
            raise ConfigurationError(
                f"run {self._run} has a checkpoint of step {line.manifests[0].step} and resume is never: "
                "a fresh start would overwrite it; use resume auto or another name"
            )
        for step, why in line.broken:
            on_fallback(step, why)
        for place, manifest in enumerate(line.manifests):
            try:
                self.load(manifest, restore)
            except (IntegrityError, MissingObjectError, UnreadableError) as error:
                on_fallback(manifest.step, str(error))
                continue
            self._steps = [older.step for older in reversed(line.manifests[place:])]
            if line.best.value and line.best.value.step <= manifest.step:
                self._best_step = line.best.value.step
            if place:
                self._move_latest(manifest)
            return manifest
        if line.manifests or line.broken or line.latest.value:
            raise CheckpointError(
                f"run {self._run} has checkpoints below s3://{self._bucket}/{keys.checkpoints(self._run)} "
                "and none is usable; restore an older version of the objects, or start a run of another name"
            )
        return None

    def _fenced_line(self) -> Line:
        """The run's line, whose end no older generation moves any more: one that still saves would go on to prune what
        is being read. Raises FencedError where a newer generation has it."""
        for left in reversed(range(FENCE_TRIES)):
            line = read_line(self._store, self._bucket, self._run)
            self._latest_etag, self._best_etag = line.latest.etag, line.best.etag
            head = line.latest.value
            if head and head.generation > self._generation:
                raise FencedError(f"run {self._run} is at generation {head.generation}; this one ends")
            if not line.manifests or self._never_resume:
                now = (
                    read_pointer(self._store, self._bucket, keys.latest(self._run))
                    if line.broken
                    else line.latest
                )
                if left and now.etag != line.latest.etag:
                    continue  # all of them were pruned between their listing and their reading
                return line
            try:
                self._move_latest(line.manifests[0])
                return line
            except FencedError:  # moved since it was read
                if not left:
                    raise
        raise AssertionError("unreachable")

    def load(self, manifest: CheckpointManifest, restore: Restore) -> None:
        """The state, from this node's disk where it is still right, else from the bucket.

        Raises IntegrityError, MissingObjectError, UnreadableError (all: try an older one), CheckpointError
        (written under another configuration, or of another model), StoreError.
        """
        if manifest.config_sha256 != self._config_sha256:
            raise CheckpointError(
                f"checkpoint of step {manifest.step} was written under another configuration"
            )
        folder = self._local / folder_name(manifest.step)
        self._local.mkdir(parents=True, exist_ok=True)
        with open(self._local / "load.lock", "w") as lock:  # ranks of one node share the folder
            fcntl.flock(lock, fcntl.LOCK_EX)
            saved = SavedState(fetch_files(self._store, self._bucket, manifest, folder))
        try:
            restore(saved)
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"checkpoint of step {manifest.step} does not fit the model: {' '.join(str(error).split())}"
            ) from error
        self._newest = manifest

    def save(
        self, step: int, samples: int, epoch: float, part: Part, writers: Writers = ALONE
    ) -> CheckpointManifest:
        """Write, upload, prove, publish, point, prune. A step that is saved already is not saved again. Collective.

        Raises CheckpointError (disk, or a step below the newest complete one), FencedError, StoreError; on all ranks
        what one of them met.
        """
        if self._newest is not None and step <= self._newest.step:
            if step == self._newest.step:
                return self._newest
            raise CheckpointError(
                f"step {step} is below the newest checkpoint, {self._newest.step}: not saved"
            )
        below = part_folder(self._local, step)
        writers.all(lambda: begin_folder(self._local, step) if writers.leads else None)
        with telling_why(below, step):
            write_state(below / self._name, part, writers)
        files = writers.all(lambda: self._upload(step) if writers.leads else [])
        published = writers.all(
            lambda: self._publish(step, samples, epoch, [*chain(*files)]) if writers.rank == 0 else None
        )[0]
        assert published is not None
        self._newest, wanted = published
        if writers.leads:
            self.keep_on_disk(wanted)
        return self._newest

    def keep_on_disk(self, steps: set[int]) -> None:
        """Of all others nothing stays on this node's disk."""
        kept = {folder_name(step) for step in steps}
        for folder in self._local.glob("step-*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _upload(self, step: int) -> list[CheckpointFile]:
        """What this node's ranks wrote, under its good name and in the bucket."""
        folder = finish_folder(self._local, step)

        def upload(path: Path) -> CheckpointFile:
            name, sha256 = path.relative_to(folder).as_posix(), sha256_of(path)
            self._store.upload(self._bucket, keys.checkpoint(self._run, step, name), path, sha256)
            return CheckpointFile(name=name, size_bytes=path.stat().st_size, sha256=sha256)

        with ThreadPoolExecutor(PARALLEL_FILES) as pool:
            return list(pool.map(upload, sorted((folder / self._name).iterdir())))

    def _publish(
        self, step: int, samples: int, epoch: float, files: list[CheckpointFile]
    ) -> tuple[CheckpointManifest, set[int]]:
        """The new checkpoint, and the steps that are kept."""
        manifest = CheckpointManifest(
            run=self._run,
            step=step,
            generation=self._generation,
            samples_consumed=samples,
            epoch=epoch,
            world_size=self._world_size,
            config_sha256=self._config_sha256,
            trainer_version=__version__,
            files=files,
            created_at=datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        self._put_manifest(manifest)
        self._move_latest(manifest)
        self._steps.append(step)
        return manifest, self._prune()

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

    def _put_manifest(self, manifest: CheckpointManifest) -> None:
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

    def _prune(self) -> set[int]:
        """Drop what no resume needs, manifests first; what fails is told and tried again at the next save. The steps
        that are kept."""
        self._steps, dropped = self._steps[-self._keep :], self._steps[: -self._keep]
        wanted = {*self._steps} if self._best_step is None else {*self._steps, self._best_step}
        newest = self._steps[-1]
        try:
            listed = self._store.list_objects(self._bucket, keys.checkpoints(self._run))
            for item in sorted(listed, key=lambda item: not item.key.endswith(MANIFEST)):
                match = STEP_FOLDER.search(item.key)
                if match and int(match[1]) < newest and int(match[1]) not in wanted:
                    self._store.delete(self._bucket, item.key)
        except StoreError as error:
            _log.warning("old checkpoints were not removed (%s): %s", dropped, error)
        return wanted


def _generation_of(manifest: bytes) -> int:
    """-1 for bytes that are no manifest."""
    try:
        return CheckpointManifest.from_json(manifest).generation
    except ValidationError:
        return -1
