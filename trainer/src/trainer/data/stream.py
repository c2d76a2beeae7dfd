"""Training without a copy of the dataset: shards are fetched a window ahead, verified, and removed behind.

The order is `WindowedOrder`'s. A node holds the shards of the window before, of those that the step reads from, and of
the next one: the window before because its other processes may be a little behind. All processes of a node share one
folder and fetch a shard once between them; across nodes each fetches every shard once an epoch, as a copy would.
Where a shard lies never decides which sample comes next: a shard that is not there when it is needed is waited for.
"""

from __future__ import annotations

import fcntl
import os
import queue
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from ..contracts.manifests import DatasetManifest, Shard
from ..contracts.node_document import DatasetLocation
from ..errors import DatasetError, Fault
from ..store import IntegrityError, MissingObjectError, NoSpaceError, Store
from .dataset import Batch, ShardedSplit
from .formats import ImageShard, TokenShard, open_shard
from .manifest import object_key
from .order import GlobalOrder, WindowedOrder

OPEN_TRIES = (
    5  # a shard that was there can be removed by a process that is ahead before this one has opened it
)


def new_cache(folder: Path, generation: int) -> Path:
    """The cache of a generation, empty at first; those of others, whose processes are gone, are removed."""
    cache = folder / f"gen-{generation:04d}"
    for other in folder.glob("gen-*"):
        if other != cache:
            shutil.rmtree(other, ignore_errors=True)
    cache.mkdir(parents=True, exist_ok=True)
    return cache


class StreamedSplit(ShardedSplit):
    """The training split, read through a folder of few shards. Raises DatasetError and StoreError while reading."""

    def __init__(
        self,
        make_store: Callable[[], Store],
        location: DatasetLocation,
        manifest: DatasetManifest,
        cache: Path,
        window_shards: int,
    ) -> None:
        """``make_store`` is called once in each process that reads: neither clients nor threads survive a fork."""
        super().__init__(cache, manifest, "train", window_shards)
        self._make_store, self._location = make_store, location
        self._order: WindowedOrder | None = None
        self._wanted: set[int] = set()
        self._reader: _Reader | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_reader": None, "_open": {}}

    def order(self, global_batch: int, seed: int) -> GlobalOrder:
        """In which its samples are read, and so in which shards are fetched."""
        order = super().order(global_batch, seed)
        assert isinstance(order, WindowedOrder)
        self._order = order
        return order

    def __getitems__(self, indices: list[int]) -> Batch:
        step = getattr(indices, "step", None)
        if step is not None and self._order is not None:
            self._move_to(step, self._order)
        return super().__getitems__(indices)

    def _move_to(self, step: int, order: WindowedOrder) -> None:
        now = [*islice(order.windows_from(step), order.windows_in(step) + 1)]
        before = next(order.windows_from(step - 1)) if step else ()
        ahead = list(dict.fromkeys(shard for window in now for shard in window))
        wanted = {*ahead, *before}
        if wanted == self._wanted:
            return
        reader = self._here()
        for shard in self._wanted - wanted:
            self._open.pop(shard, None)  # a file that is mapped keeps its room on the disk
            (self._folder / self._shards[shard].name).unlink(missing_ok=True)
        self._wanted = wanted
        reader.fetch_ahead([self._shards[shard] for shard in ahead])

    def _shard(self, shard: int) -> ImageShard | TokenShard:
        path, reader = self._folder / self._shards[shard].name, self._here()
        for left in reversed(range(OPEN_TRIES)):
            if shard in self._open:
                break
            reader.fetch(self._shards[shard])
            try:
                self._open[shard] = open_shard(path, self._manifest)
            except DatasetError:
                if not left:
                    raise
        return self._open[shard]

    def _here(self) -> _Reader:
        if self._reader is None or self._reader.process != os.getpid():
            self._reader = _Reader(self._make_store(), self._location, self._manifest, self._folder)
        return self._reader


class _Reader:
    """What fetches shards in one process: on demand, and ahead in a thread of its own."""

    def __init__(
        self, store: Store, location: DatasetLocation, manifest: DatasetManifest, folder: Path
    ) -> None:
        self.process = os.getpid()
        self._store, self._location, self._manifest, self._folder = store, location, manifest, folder
        self._coming: queue.SimpleQueue[list[Shard]] = queue.SimpleQueue()
        threading.Thread(target=self._work, daemon=True, name="stream").start()

    def fetch_ahead(self, shards: list[Shard]) -> None:
        """Nearest first; what was asked for before and is not begun is given up."""
        self._coming.put(shards)

    def _work(self) -> None:
        while True:
            shards = self._coming.get()
            for shard in shards:
                if not self._coming.empty():
                    break
                with suppress(Fault, OSError):  # whoever needs the shard meets the same fault
                    self.fetch(shard)

    def fetch(self, shard: Shard) -> None:
        """See to it that the shard is there, verified; waits where another process fetches it."""
        target = self._folder / shard.name
        if target.exists():
            return
        manifest = self._manifest
        what = f"dataset {manifest.name}@{manifest.version}, shard {shard.name}"
        key = object_key(self._location, manifest.version, shard.name)
        with self._alone(shard):
            if target.exists():
                return
            try:
                self._store.download(self._location.bucket, key, target, shard.size_bytes, shard.sha256)
            except (IntegrityError, MissingObjectError) as error:
                raise DatasetError(f"{what}: {error}; publish the data under a new version") from error
            except NoSpaceError as error:
                raise DatasetError(f"{what}: {error}, or use a smaller streamWindowShards") from error

    @contextmanager
    def _alone(self, shard: Shard) -> Iterator[None]:
        with open(self._folder / f".{shard.name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # let go of by the kernel, however the process ends
            try:
                yield
            finally:
                # Closing alone does not: a loader that was forked meanwhile holds the file open too.
                fcntl.flock(lock, fcntl.LOCK_UN)
