"""The two splits of a run's dataset on a node, by the way it is read: a copy, a mount, or a stream of shards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..contracts.manifests import DatasetManifest
from ..contracts.node_document import DatasetLocation
from ..contracts.run import TrainingConfig
from ..errors import ConfigurationError
from ..store import Store
from .dataset import ShardedSplit, make_split
from .manifest import DatasetName
from .stream import StreamedSplit, new_cache
from .sync import read_dir, stream_dir
from .verify import local_manifest


@dataclass(frozen=True)
class Splits:
    manifest: DatasetManifest
    train: ShardedSplit
    test: ShardedSplit


def open_splits(
    training: TrainingConfig,
    location: DatasetLocation | None,
    name: DatasetName,
    data_dir: str,
    run: str,
    generation: int,
    make_store: Callable[[], Store],
) -> Splits:
    """What `trainer.agent.prepare` has made ready. Raises DatasetError where it has not, ConfigurationError.

    A streamed run reads in windows of shards, also where the dataset is mounted: there without a cache of its own.
    """
    window = training.stream_window_shards if training.data == "stream" else None
    if window is None or (location is not None and location.path is not None):
        folder = read_dir(location, data_dir, name.name, name.version)
        manifest = local_manifest(folder)
        train = make_split(folder, manifest, "train", window)
    else:
        if location is None:
            raise ConfigurationError(
                f"data: stream, but nothing says which bucket holds {name}; use data: sync"
            )
        base = stream_dir(data_dir, run)
        folder = base / "dataset"
        manifest = local_manifest(folder)
        train = StreamedSplit(make_store, location, manifest, new_cache(base, generation), window)
    return Splits(manifest, train, make_split(Path(folder), manifest, "test"))
