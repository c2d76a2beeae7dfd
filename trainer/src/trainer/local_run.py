"""A run on this machine: the loop of the nodes' workers over a folder of shards and a folder in place of S3.

``<run-dir>/gen-<n>/`` holds the events of each start, ``<run-dir>/store/`` what would be in the artifacts bucket.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import time
import traceback
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from pydantic import ValidationError

from .contracts import keys
from .contracts.manifests import DatasetManifest
from .contracts.run import RunConfig
from .contracts.worker import STOP_FILE, events_file
from .data.dataset import dataset_info, make_split
from .data.manifest import DatasetName, parse_name
from .data.publish import manifest_of
from .errors import ConfigurationError
from .exit_codes import Exit
from .file_store import FileStore
from .local_report import Report
from .local_settings import data_folder, dataset_of, run_folder, settings_of
from .models.dropout import seed_dropout
from .models.load import build_model
from .runs.config import validate
from .train.checkpoint import Checkpoints
from .train.events import EventLog
from .train.init_from import fetch_weights
from .train.job import Job
from .train.loop import train
from .train.precision import agree_on_precision
from .train.stop import StopRequest
from .train.world import World, join_world, leave_world
from .worker import as_fault, loader_workers

BUCKET = "run"  # a folder below store/
RUN_FILE = "run.json"
# What all ranks find, or what the others meet because one of them is gone.
TOLD_BY_RANK_0 = frozenset(
    {Exit.CONFIGURATION, Exit.DATASET, Exit.NON_FINITE, Exit.CHECKPOINT, Exit.PEER_LOST}
)


def train_here(arguments: argparse.Namespace) -> int:
    """One rank's whole life; returns its exit code, which is 75 after Ctrl-C or SIGTERM with a checkpoint saved."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s: %(message)s", stream=sys.stderr)
    events: list[EventLog] = []
    try:
        return int(_one_rank(arguments, events))
    except Exception as error:
        fault = as_fault(error)
        if fault.exit_code is Exit.BUG:
            traceback.print_exc()
        for log in events:
            log.write("error", code=int(fault.exit_code), message=str(fault))
        if os.environ["RANK"] != "0" and fault.exit_code in TOLD_BY_RANK_0:
            return int(fault.exit_code)
        raise fault from error
    finally:
        for log in events:
            log.close()
        leave_world()


def _one_rank(arguments: argparse.Namespace, opened: list[EventLog]) -> Exit:
    manifest, folder = _dataset(arguments)
    run = validate(settings_of(arguments, f"{manifest.name}@{manifest.version}"))
    if parse_name(run.training.dataset) != DatasetName(manifest.name, manifest.version):
        raise ConfigurationError(
            f"{folder} holds {manifest.name}@{manifest.version}, the run asks for {run.training.dataset}; "
            "give another --dataset folder"
        )
    if run.training.data == "stream":
        raise ConfigurationError(
            "training.data: stream fetches from a bucket; a folder is read as it is: use sync"
        )
    run_dir = run_folder(arguments, run.name)
    device = _device(arguments.device)
    _same_as_before(run, run_dir)
    world = join_world(device)
    gen_dir = run_dir / f"gen-{int(world.from_rank0(_next_generation(run_dir))):04d}"
    report = Report(run, world.size, device, run_dir, arguments.json) if world.rank == 0 else None
    events = EventLog(events_file(gen_dir, world.rank), report.take if report else None)
    opened.append(events)
    if world.rank == 0:
        _remember(run, run_dir)
    stop = StopRequest(gen_dir)
    stop.listen()
    _listen_for_ctrl_c(gen_dir, world.rank == 0)
    return _train(run, manifest, folder, run_dir, int(gen_dir.name.removeprefix("gen-")), world, stop, events)


def _same_as_before(run: RunConfig, run_dir: Path) -> None:
    """A resume under other settings would be another run; raises ConfigurationError with what differs."""
    path = run_dir / RUN_FILE
    if not path.is_file() or FileStore(run_dir / "store").get(BUCKET, keys.latest(run.name)) is None:
        return  # nothing to go on from
    try:  # as this release reads it: a setting that came later has its default
        was = RunConfig.from_json(path.read_bytes())
    except ValidationError as error:
        raise ConfigurationError(
            f"{path} is of another release of the trainer: go on with that one, or begin anew with another --run name"
        ) from error
    before, now = (_flat(json.loads(one.to_json())) for one in (was, run))
    differ = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    if differ:
        changes = ", ".join(f"{name} was {before.get(name)}, is {now.get(name)}" for name in differ[:3])
        raise ConfigurationError(
            f"run {run.name} was begun with other settings ({changes}): give them again to go on, "
            "or another --run name to begin anew"
        )


def _remember(run: RunConfig, run_dir: Path) -> None:
    """What the next start is compared with; a kill in between leaves what was there."""
    part = run_dir / f"{RUN_FILE}.part"
    part.write_text(run.to_json())
    os.replace(part, run_dir / RUN_FILE)


def _flat(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def _train(
    run: RunConfig,
    manifest: DatasetManifest,
    folder: Path,
    run_dir: Path,
    generation: int,
    world: World,
    stop: StopRequest,
    events: EventLog,
) -> Exit:
    training, info = run.training, dataset_info(manifest)
    store = FileStore(run_dir / "store")
    torch.manual_seed(training.seed)  # every rank builds the same weights
    sys.path.append(str(Path.cwd()))  # a model of one's own may lie here
    model = build_model(training, info, if_absent=f"put it into {Path.cwd()}, or install it here with pip")
    dropout = seed_dropout(model, training.seed)
    weights = None
    if training.init_from:
        # Runs of this machine lie side by side; one that is named is looked for beside this one.
        named = training.init_from.removeprefix("run:")
        source = FileStore(run_dir.parent / named / "store") if named != training.init_from else store
        weights = partial(fetch_weights, training.init_from, source, BUCKET, run_dir / "init")
    job = Job(
        training=training,
        world=world,
        info=info,
        train_split=make_split(folder, manifest, "train"),
        test_split=make_split(folder, manifest, "test"),
        model=model,
        dropout=dropout,
        precision=agree_on_precision(training.precision, world),
        checkpoints=Checkpoints(store, BUCKET, run, generation, world.size, run_dir / "checkpoints"),
        stop=stop,
        events=events,
        loader_workers=loader_workers() if world.device.type == "cuda" else 0,
        weights=weights,
    )
    code = train(job)
    world.wait()  # nobody closes a connection that another one still reads from
    return code


def _dataset(arguments: argparse.Namespace) -> tuple[DatasetManifest, Path]:
    """The manifest of the folder; one that was not published has none, and is looked into."""
    folder = data_folder(arguments)
    return manifest_of(folder, dataset_of(folder, arguments)), folder


def _device(asked: str) -> str:
    if asked == "cuda" and not torch.cuda.is_available():
        raise ConfigurationError("--device cuda: torch sees no GPU; `trainer selfcheck` says why")
    return "cuda" if asked != "cpu" and torch.cuda.is_available() else "cpu"


def _next_generation(run_dir: Path) -> int:
    numbers = [path.name.removeprefix("gen-") for path in run_dir.glob("gen-*") if path.is_dir()]
    return max((int(number) for number in numbers if number.isdecimal()), default=0) + 1


def _listen_for_ctrl_c(gen_dir: Path, tell: bool) -> None:
    """The first Ctrl-C stops at the next step, with a save; one that comes a second later at the earliest ends at once
    (torchrun sends on what the terminal has already sent)."""
    first: list[float] = []

    def on_interrupt(_number: int, _frame: FrameType | None) -> None:
        if not first:
            first.append(time.monotonic())
            (gen_dir / STOP_FILE).write_text("user")
            if tell:
                print(
                    "trainer: saving at the next step, then stopping; Ctrl-C again ends at once",
                    file=sys.stderr,
                )
        elif time.monotonic() - first[0] > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, on_interrupt)
