"""``trainer train``: a training on this machine, from a folder of shards to a folder of checkpoints; no cloud."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .errors import ConfigurationError
from .exclusive import hold
from .needs import need

DESCRIPTION = """\
Train on this machine: one process, or several with --processes, --devices or under torchrun. Needs torch and numpy.

  trainer dataset make-sample shapes
  trainer train --dataset shapes --epochs 2

Ctrl-C saves and stops; the same command again goes on from there. Checkpoints and events are in --run-dir.
Several runs train side by side on one machine, each on GPUs and in a folder of its own: --devices 0,1 and --devices 2.
"""


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
        "--name",
        dest="run_name",
        metavar="NAME",
        help="name of the run (default: of --config, else of the data); after torchrun write --name: it takes --run "
        "for one of its own",
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
        "--devices",
        metavar="0,1",
        help="the GPUs of this run alone, one process each, by number or UUID as nvidia-smi -L shows them",
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
    need("torch", "numpy")
    from .local_launch import MEETING_FILE, launch, meeting_file, rank_environment
    from .local_settings import data_folder, dataset_of, run_folder, settings_of
    from .runs.config import validate

    if MEETING_FILE in os.environ:  # one of the processes that are started below
        from .local_run import train_here

        return train_here(arguments)
    torchrun = os.environ.keys() >= {"RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE"}
    gpus = _gpus(arguments, int(os.environ["LOCAL_WORLD_SIZE"]) if torchrun else arguments.processes)
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    run = validate(settings_of(arguments, str(dataset_of(data_folder(arguments), arguments))))
    folder = run_folder(arguments, run.name)
    if torchrun:  # its ranks find each other by themselves; one of a machine holds the machine's GPUs
        leads = os.environ["RANK"] == "0", os.environ["LOCAL_RANK"] == "0"
        with hold(run.name, folder if leads[0] else None, gpus if leads[1] else []):
            from .local_run import train_here

            return train_here(arguments)
    processes = arguments.processes or (len(gpus) if arguments.devices is not None else 1)
    with hold(run.name, folder, gpus) as locks, meeting_file() as file:
        if processes > 1:
            return launch(["-m", "trainer", *sys.argv[1:]], processes, os.environ, file, locks)
        os.environ.update(rank_environment(0, 1, file))
        from .local_run import train_here

        return train_here(arguments)


def _gpus(arguments: argparse.Namespace, processes: int | None) -> list[str]:
    """UUIDs of the run's GPUs; empty on a CPU, and where it cannot be told which ones CUDA will take."""
    if processes is not None and processes < 1:
        raise ConfigurationError(f"--processes must be at least 1, not {processes}")
    if arguments.device == "cpu":
        if arguments.devices is not None:
            raise ConfigurationError("--devices names GPUs and --device says cpu; leave one of them out")
        return []
    from .devices.nvml import Nvml, NvmlUnavailable
    from .devices.selection import choose

    try:
        with Nvml() as nvml:
            readings = nvml.readings()
    except NvmlUnavailable as error:
        if arguments.devices is not None:
            raise ConfigurationError(
                f"--devices {arguments.devices}: no GPU can be seen here: {error}"
            ) from error
        return []
    return choose(arguments.devices, processes, readings, os.environ) or []
