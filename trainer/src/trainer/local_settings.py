"""What a training on this machine is of: its configuration, its data and its folder, from a file and flags."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from .data.manifest import MANIFEST, DatasetName, local_name, parse_manifest, parse_name
from .errors import ConfigurationError
from .runs.config import merge, parse_setting, read_file


def settings_of(arguments: argparse.Namespace, dataset: str | None) -> dict[str, Any]:
    """The run's configuration from file and flags, flags winning; ``dataset``: NAME@VERSION that the folder holds."""
    data = read_file(arguments.config) if arguments.config is not None else {}
    data = {**data, "groups": ["local"], "nodes": 1}
    if arguments.run_name is not None:
        data["name"] = arguments.run_name
    flags = {
        "training.model": arguments.model,
        "training.globalBatchSize": arguments.batch_size,
        "training.epochs": arguments.epochs,
        "training.steps": arguments.steps,
    }
    for path, value in flags.items():
        if value is not None:
            data = merge(data, path, value)
    for path, value in map(parse_setting, arguments.set):
        data = merge(data, path, value)
    training = data.get("training")
    if isinstance(training, dict):
        if arguments.steps is not None:
            training.pop("epochs", None)
        if arguments.epochs is not None:
            training.pop("steps", None)
    if dataset is not None and not (isinstance(training, dict) and "dataset" in training):
        data = merge(data, "training.dataset", dataset)
    named = dataset or (training.get("dataset") if isinstance(training, dict) else None) or "run"
    data.setdefault("name", str(named).partition("@")[0])
    return data


def run_folder(arguments: argparse.Namespace, name: str) -> Path:
    folder: Path = arguments.run_dir or Path("runs") / name
    if folder.exists() and not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder; give the run another one with --run-dir")
    return folder.absolute()


def data_folder(arguments: argparse.Namespace) -> Path:
    """Where the shards lie; raises ConfigurationError."""
    folder: Path | None = arguments.dataset
    if folder is None:
        named = _dataset_setting(arguments)
        if named is None:
            raise ConfigurationError(
                "which data? give --dataset FOLDER, or a --config whose training names a dataset"
            )
        folder = Path(named.partition("@")[0])
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is not a folder; --dataset is a folder of shards, such as `trainer dataset make-sample` writes"
        )
    return folder


def dataset_of(folder: Path, arguments: argparse.Namespace) -> DatasetName:
    """What the folder holds; data that was not published has no name of its own."""
    if (folder / MANIFEST).is_file():
        manifest = parse_manifest((folder / MANIFEST).read_bytes(), str(folder / MANIFEST))
        return DatasetName(manifest.name, manifest.version)
    if named := _dataset_setting(arguments):
        return parse_name(named)
    return local_name(folder)


def _dataset_setting(arguments: argparse.Namespace) -> str | None:
    training = settings_of(arguments, None).get("training")
    named = training.get("dataset") if isinstance(training, dict) else None
    return named if isinstance(named, str) else None
