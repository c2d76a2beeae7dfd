"""What a node needs before it is a member of a run: its secrets, and the dataset, verified."""

from __future__ import annotations

import fcntl
import os
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from ..contracts.node_document import NodeDocument
from ..contracts.run import RunConfig
from ..data.manifest import parse_name
from ..data.mounted import open_mounted
from ..data.sync import SyncProgress, stream_dir, sync_dataset, sync_for_stream, version_dir
from ..disks.prepare import SCRATCH_FOLDER
from ..errors import ConfigurationError, StoreError
from ..obs.logs import get_logger
from ..store import Store
from .secret_values import Secrets, fetch_secrets

TRIES = 8


def prepare(
    store: Store,
    document: NodeDocument,
    run: RunConfig,
    state_dir: Path,
    progress: SyncProgress | None = None,
) -> Secrets:
    """Raises DatasetError (20), ConfigurationError (2), StoreError (21); what is there and right is kept."""
    secrets = fetch_secrets(document)  # first: a missing one is told before gigabytes are fetched
    dataset = parse_name(run.training.dataset)
    location = document.datasets.get(dataset.name)
    if location is None:
        known = ", ".join(sorted(document.datasets)) or "none"
        raise ConfigurationError(f'this stack has no dataset "{dataset.name}" (it has: {known})')
    root = data_dir(document, state_dir)
    if location.read_path != "sync":
        open_mounted(store, location, dataset.name, dataset.version)
    elif run.training.data == "stream":
        folder = stream_dir(root, run.name) / "dataset"
        window = run.training.stream_window_shards
        sync_for_stream(store, location, dataset.name, dataset.version, folder, window)
    else:
        folder = version_dir(root, dataset.name, dataset.version)
        sync_dataset(store, location, dataset.name, dataset.version, folder, progress)
    return secrets


def data_dir(document: NodeDocument, state_dir: Path) -> Path:
    """Where copies of datasets lie: on scratch space where there is some, else beside the agent's state."""
    if document.scratch is not None:
        folder = Path(document.scratch.path) / SCRATCH_FOLDER
        if os.path.ismount(document.scratch.path) and os.access(folder, os.W_OK):
            return folder / "data"
    return state_dir / "data"


@dataclass
class Preparation:
    """`prepare` in a daemon thread, again while S3 does not answer: a download never holds back the agent's end."""

    store: Store
    document: NodeDocument
    run: RunConfig
    state_dir: Path
    _tries: int = 0
    _secrets: Future[Secrets] | None = None  # of the try under way
    _given_up: threading.Event = field(default_factory=threading.Event)

    def look(self) -> Secrets | None:
        """None while it goes on. Raises what `prepare` raises, a StoreError after some tries only."""
        if self._secrets is None:
            get_logger().info("preparing", dataset=self.run.training.dataset)
            self._tries += 1
            self._secrets = Future()
            threading.Thread(target=self._work, args=(self._secrets,), daemon=True, name="prepare").start()
        if not self._secrets.done():
            return None
        error = self._secrets.exception()
        if isinstance(error, StoreError) and self._tries < TRIES:
            get_logger().warning("preparation failed, trying again", error=str(error))
            self._secrets = None
            return None
        return self._secrets.result()

    def give_up(self) -> None:
        """Nobody waits for it any more; it ends with the next bytes that come."""
        self._given_up.set()

    def _work(self, secrets: Future[Secrets]) -> None:
        try:
            # One at a time: a run's end does not wait for its download, and the next run may want the same files.
            with open(self.state_dir / "prepare.lock", "w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                self._check()
                secrets.set_result(prepare(self.store, self.document, self.run, self.state_dir, self._check))
        except BaseException as error:  # handed to whoever asks for the result
            secrets.set_exception(error)

    def _check(self, _done: int = 0, _total: int = 0) -> None:
        if self._given_up.is_set():
            raise StoreError("given up: the run is over for this node")
