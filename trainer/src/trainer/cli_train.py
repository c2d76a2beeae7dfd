"""``trainer train``: a training on this machine, from a folder of shards to a folder of checkpoints; no cloud."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from .errors import ConfigurationError

DESCRIPTION = """\
Train on this machine: one process, or several with --processes, --devices or under torchrun. Needs torch and numpy.

  trainer dataset make-sample shapes
  trainer train --dataset shapes --epochs 2

Ctrl-C saves and stops; the same command again goes on from there. Checkpoints, events and logs are in --run-dir.
"""

RANKED = frozenset({"RANK", "WORLD_SIZE"})  # set for a process that torchrun or we started


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    train = subparsers.add_parser(
        "train",
        help="train on this machine",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    train.add_argument(
        "--config", type=Path, metavar="FILE", help="a run as `trainer run start` takes it: YAML or JSON"
    )
    train.add_argument(
        "--dataset",
        type=Path,
        metavar="FOLDER",
        help="where the shards lie (default: ./NAME of NAME@VERSION)",
    )
    train.add_argument(
        "--run",
        dest="run_name",
        metavar="NAME",
        help="name of the run (default: of --config, else of the data)",
    )
    train.add_argument(
        "--run-dir", type=Path, metavar="FOLDER", help="what the run leaves (default: runs/NAME)"
    )
    train.add_argument("--model", help="built-in name, or package.module:factory")
    train.add_argument("--batch-size", type=int, metavar="N", help="samples a step, over all processes")
    length = train.add_mutually_exclusive_group()
    length.add_argument("--epochs", type=float, metavar="N")
    length.add_argument("--steps", type=int, metavar="N")
    train.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="default: auto, a GPU where there is one",
    )
    train.add_argument(
        "--devices", metavar="0,1", help="the GPUs of this run alone, by NVML index: one process each"
    )
    train.add_argument(
        "--processes", type=int, metavar="N", help="processes on this machine (default: one a device)"
    )
    train.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="any other setting, such as training.learningRate=0.01",
    )
    train.add_argument("--json", action="store_true", help="events as JSON lines instead of a table")
    train.set_defaults(run=_train)


def _train(arguments: argparse.Namespace) -> int:
    _need("torch", "numpy")
    if os.environ.keys() >= RANKED:
        from .local_run import train_here

        return train_here(arguments)
    from .devices.selection import by_uuid

    environment = dict(os.environ)
    if arguments.devices is not None:
        if arguments.device == "cpu":
            raise ConfigurationError("--devices names GPUs and --device says cpu; leave one of them out")
        environment["CUDA_VISIBLE_DEVICES"] = by_uuid(arguments.devices)
    processes = arguments.processes
    if processes is None:
        processes = len(arguments.devices.split(",")) if arguments.devices is not None else 1
    if processes < 1:
        raise ConfigurationError(f"--processes must be at least 1, not {processes}")
    from .local_launch import launch, meeting_file, rank_environment

    if processes > 1:
        return launch(["-m", "trainer", *sys.argv[1:]], processes, environment)
    with meeting_file() as file:
        os.environ.update({**environment, **rank_environment(0, 1, file)})
        from .local_run import train_here

        return train_here(arguments)


def _need(*modules: str) -> None:
    from importlib.util import find_spec

    missing = [module for module in modules if find_spec(module) is None]
    if missing:
        raise ConfigurationError(
            f"this command needs {' and '.join(missing)}; install them: pip install 'gpu-trainer[torch]'"
        )


def settings_of(arguments: argparse.Namespace, dataset: str | None) -> dict[str, Any]:
    """The run's configuration from file and flags, flags winning; ``dataset``: NAME@VERSION that the folder holds."""
    from .runs.config import merge, parse_setting, read_file

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
    data.setdefault("name", str(data.get("training", {}).get("dataset", "run")).partition("@")[0])
    return data
