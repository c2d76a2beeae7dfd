"""What a node needs before it is a member of a run: the dataset, verified, and the user's own package."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import threading
import zipfile
from concurrent.futures import Future
from pathlib import Path

from ..contracts import keys
from ..contracts.node_document import NodeDocument
from ..contracts.run import RunConfig
from ..data.manifest import parse_name
from ..data.sync import sync_dataset, version_dir
from ..errors import ConfigurationError
from ..store import Store


def prepare(store: Store, document: NodeDocument, run: RunConfig, state_dir: Path) -> None:
    """Raises DatasetError (20), ConfigurationError (2), StoreError (21); what is there and right is kept."""
    dataset = parse_name(run.training.dataset)
    location = document.datasets.get(dataset.name)
    if location is None:
        known = ", ".join(sorted(document.datasets)) or "none"
        raise ConfigurationError(f'this stack has no dataset "{dataset.name}" (it has: {known})')
    sync_dataset(
        store,
        location,
        dataset.name,
        dataset.version,
        version_dir(state_dir / "data", dataset.name, dataset.version),
    )
    if run.training.user_wheel:
        install_user_wheel(store, document.artifacts_bucket, run.name, run.training.user_wheel, state_dir)


def in_background(store: Store, document: NodeDocument, run: RunConfig, state_dir: Path) -> Future[None]:
    """`prepare` in a daemon thread: a download under way never holds back the end of the agent."""
    future: Future[None] = Future()

    def body() -> None:
        try:
            prepare(store, document, run, state_dir)
        except BaseException as error:  # handed to whoever asks for the result
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=body, daemon=True, name="prepare").start()
    return future


def install_user_wheel(store: Store, bucket: str, run: str, name: str, state_dir: Path) -> Path:
    """Unpack ``releases/user/<sha256>/<file>.whl`` below ``<state-dir>/user/``; returns the folder for PYTHONPATH.

    A wheel is a zip of what belongs on the path. One with a ``.data`` folder needs an installer and is refused, as is
    one whose bytes are not those its name tells: the name is what the run's configuration was written for.
    """
    sha256, _, file_name = name.partition("/")
    target = state_dir / "user" / f"{run}-{sha256[:16]}"
    if target.is_dir():
        return target
    fetched = store.get(bucket, keys.user_wheel(name))
    if fetched is None:
        raise ConfigurationError(f"the user's wheel s3://{bucket}/{keys.user_wheel(name)} is missing")
    if hashlib.sha256(fetched.body).hexdigest() != sha256:
        raise ConfigurationError(
            f"the user's wheel {file_name} does not have the SHA-256 that its name tells"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = Path(tempfile.mkdtemp(prefix=".part-", dir=target.parent))
    try:
        archive_file = partial / "wheel.zip"
        archive_file.write_bytes(fetched.body)
        with zipfile.ZipFile(archive_file) as archive:
            if any(".data/" in entry for entry in archive.namelist()):
                raise ConfigurationError(
                    f"the user's wheel {file_name} has a .data folder; build a plain wheel"
                )
            archive.extractall(partial)  # refuses to leave the folder by itself
        archive_file.unlink()
        os.replace(partial, target)
    except zipfile.BadZipFile as error:
        raise ConfigurationError(f"the user's wheel {file_name} is no wheel: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
