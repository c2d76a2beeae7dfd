"""A state's files, by torch.distributed.checkpoint: each rank writes its part, and reads what it needs.

Beside them is ``plain.json`` with what is no tensor. Nothing in the files is ever run: tensors are read by
``torch.load(weights_only=True)``, and the index, which DCP pickles, by an unpickler that knows its few classes alone.
"""

from __future__ import annotations

import json
import os
import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint import metadata as dcp_index
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import (
    FileSystemReader,
    FileSystemWriter,
    _StorageInfo,  # where in which file a tensor is
)
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from .state import WEIGHTS, Part
from .world import Writers

PLAIN = "plain.json"
_INDEX = ".metadata"
_CLASSES = {
    "Metadata",
    "MetadataIndex",
    "TensorStorageMetadata",
    "ChunkStorageMetadata",
    "TensorProperties",
    "_MEM_FORMAT_ENCODING",
}
# DCP takes one process alone for a mistake, and says so at each save and load.
warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)


class UnreadableError(Exception):
    """The bytes are the published ones and yet no state can be read from them."""


def write_state(folder: Path, part: Part, writers: Writers) -> None:
    """This rank's part, synced, into a folder of its node's disk; the last of it is rank 0's index. Collective.

    Raises what writing raises, on all ranks where it fails on one.
    """
    if writers.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / PLAIN, "w") as file:
            json.dump(part.plain, file)
            file.flush()
            os.fsync(file.fileno())
    try:
        save(
            part.tensors,
            storage_writer=_Writer(folder),
            planner=_Planner(part.values),
            process_group=writers.group,
            no_dist=writers.group is None,
        )
    except CheckpointException as error:
        raise next(iter(error.failures.values()))[0] from None


class _Writer(FileSystemWriter):
    def storage_meta(self) -> None:
        """No path of this machine in the index."""


class _Planner(DefaultSavePlanner):
    """Plans by the tensors, whose shapes and division count; writes the values, which may be a copy elsewhere."""

    def __init__(self, values: dict[str, torch.Tensor]) -> None:
        super().__init__(flatten_state_dict=False, flatten_sharded_tensors=False)
        self._values = values

    def lookup_object(self, index: MetadataIndex) -> torch.Tensor:
        return self._values[index.fqn]


class SavedState:
    """A checkpoint in a folder. Raises UnreadableError, here and from each method."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.plain: dict[str, Any] = _readable(folder, lambda: json.loads((folder / PLAIN).read_text()))
        self._index = _readable(folder, lambda: _read_index(folder / _INDEX))
        self.sizes: dict[str, TensorStorageMetadata] = self._index.state_dict_metadata  # type: ignore[assignment]

    def fill(self, targets: dict[str, torch.Tensor]) -> None:
        """Read into the given tensors, whole ones or shards, however they were divided when they were saved.

        Raises ValueError, with the first name that is not there or has another shape, before anything is read.
        """
        for name, target in targets.items():
            if name not in self.sizes:
                raise ValueError(f"it has no {name}")
            if self.sizes[name].size != target.shape:
                raise ValueError(f"{name} is {list(self.sizes[name].size)} there, {list(target.shape)} here")
        reader, planner = _Reader(self._folder, self._index), DefaultLoadPlanner(False, False)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # many small copies: threads wait for each other longer than they copy
        try:
            _readable(
                self._folder, lambda: load(targets, storage_reader=reader, planner=planner, no_dist=True)
            )
        finally:
            torch.set_num_threads(threads)

    def weights(self) -> dict[str, torch.Tensor]:
        """The model's state_dict, whole, on the CPU; tied weights under each of their names."""
        names = [name for name in self.sizes if name.startswith(WEIGHTS)]
        found = {
            name: torch.empty(self.sizes[name].size, dtype=self.sizes[name].properties.dtype)
            for name in names
        }
        self.fill(found)
        weights = {name.removeprefix(WEIGHTS): value for name, value in found.items()}
        return weights | {name: weights[first] for name, first in self.plain["tied"].items()}


class _Reader(FileSystemReader):
    def __init__(self, folder: Path, index: Metadata) -> None:
        super().__init__(folder)
        self._index = index

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        return self._index


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == dcp_index.__name__ and name in _CLASSES:
            return getattr(dcp_index, name)
        if (module, name) == (_StorageInfo.__module__, "_StorageInfo"):
            return _StorageInfo
        known = getattr(torch, name, None) if module == "torch" else None
        if known is torch.Size or isinstance(known, torch.dtype):
            return known
        if (module, name) == ("torch.serialization", "_get_layout"):
            return torch.serialization._get_layout  # pyright: ignore[reportPrivateUsage]
        if (module, name) == ("builtins", "getattr"):
            return _memory_format
        raise pickle.UnpicklingError(f"{module}.{name} does not belong into an index of tensors")


def _memory_format(owner: object, name: str) -> object:
    """For ``getattr``, by which some Pythons (3.11.2 is one) pickle the members of an enum."""
    if owner is not dcp_index._MEM_FORMAT_ENCODING:  # pyright: ignore[reportPrivateUsage]
        raise pickle.UnpicklingError(f"an attribute of {owner!r} does not belong into an index of tensors")
    return dcp_index._MEM_FORMAT_ENCODING[name]  # pyright: ignore[reportPrivateUsage]


def _read_index(path: Path) -> Metadata:
    with open(path, "rb") as file:
        index = _Unpickler(file).load()
    if not isinstance(index, Metadata) or not all(
        isinstance(one, TensorStorageMetadata) for one in index.state_dict_metadata.values()
    ):
        raise ValueError("it is no index of tensors")
    return index


def _readable(folder: Path, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except CheckpointException as error:
        cause: BaseException = next(iter(error.failures.values()))[0]
    except Exception as error:  # a damaged pickle raises anything
        cause = error
    raise UnreadableError(
        f"{folder.name} cannot be read: {type(cause).__name__}: {' '.join(str(cause).split())}"
    ) from cause
