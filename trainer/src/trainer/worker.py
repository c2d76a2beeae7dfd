"""One rank of a training: ``torchrun ... -m trainer.worker <generation folder>/worker.json``.

Every way to end leaves ``exit-rank<r>.json`` with a code of `trainer.exit_codes` and one line for people.
Nothing here waits without a limit: collectives have time-outs (`trainer.train.world`), S3 calls too.
"""

# ruff: noqa: E402 (imports after the handler on purpose)
from __future__ import annotations

import faulthandler
import signal

# SIGUSR1 writes all threads' stacks to standard error, the worker's log: the agent asks for it when no step comes.
# Before the imports below, which take seconds in which the signal would end the process. Loaders inherit it.
faulthandler.register(signal.SIGUSR1, file=2, all_threads=True, chain=False)

import logging
import os
import sys
from functools import partial
from pathlib import Path

import torch
from pydantic import ValidationError

from .contracts.worker import ExitReport, WorkerConfig, events_file, exit_file
from .data.dataset import dataset_info
from .data.manifest import parse_name
from .data.reading import open_splits
from .errors import ConfigurationError, Fault, OutOfMemoryError, PeerLostError
from .exit_codes import Exit
from .models.dropout import seed_dropout
from .models.load import build_model
from .models.user_wheel import install_user_wheel
from .obs.logs import bind, capture_logging, configure, get_logger
from .store import Store
from .train.checkpoint import Checkpoints
from .train.events import EventLog
from .train.init_from import fetch_weights
from .train.job import Job
from .train.loop import train
from .train.memory import is_out_of_memory
from .train.precision import agree_on_precision
from .train.stop import StopRequest
from .train.world import is_peer_loss, join_world, leave_world

MAX_LOADER_WORKERS = 4


def read_config(path: Path) -> WorkerConfig:
    """Raises ConfigurationError."""
    try:
        return WorkerConfig.from_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise ConfigurationError(f"{path}: {' '.join(str(error).split())}") from error


def run(config: WorkerConfig, stop: StopRequest, events: EventLog) -> Exit:
    """Meet the other ranks, load data and model, train. Raises Fault, and what torch raises."""
    training, generation = config.run.training, config.generation.n
    name = parse_name(training.dataset)
    splits = open_splits(
        training,
        config.document.datasets.get(name.name),
        name,
        config.data_dir,
        config.run.name,
        generation,
        partial(Store, region=config.document.region),
    )
    info = dataset_info(splits.manifest)
    store, bucket = Store(region=config.document.region), config.document.artifacts_bucket
    run_dir = Path(config.state_dir) / "runs" / config.run.name
    torch.manual_seed(training.seed)  # every rank builds the same weights
    if training.user_wheel is None:
        model = build_model(training, info)
    else:
        packages = install_user_wheel(store, bucket, training.user_wheel, run_dir)
        absent = f"the wheel {training.user_wheel} does not hold it"
        model = build_model(training, info, packages, absent)
    dropout = seed_dropout(model, training.seed)
    world = join_world(config.device)
    job = Job(
        training=training,
        world=world,
        info=info,
        train_split=splits.train,
        test_split=splits.test,
        model=model,
        dropout=dropout,
        precision=agree_on_precision(training.precision, world),
        checkpoints=Checkpoints(store, bucket, config.run, generation, world.size, run_dir / "checkpoints"),
        stop=stop,
        events=events,
        loader_workers=loader_workers() if config.device == "cuda" else 0,
        weights=partial(fetch_weights, training.init_from, store, bucket, run_dir / "init")
        if training.init_from
        else None,
        whole_world=config.run.nodes * max(member.local_world_size for member in config.generation.members),
    )
    code = train(job)
    world.wait()  # nobody closes a connection that another one still reads from
    leave_world()
    return code


def loader_workers() -> int:
    """Processes that read for this rank: what cores there are beside one for each rank of this machine."""
    local_ranks = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(MAX_LOADER_WORKERS, (os.cpu_count() or 1) // local_ranks - 1))


def as_fault(error: BaseException) -> Fault:
    """What an exception means to the agent; an unexpected one is a bug (70), its trace is in the log."""
    if isinstance(error, Fault):
        # One that a loader process met comes with its trace in the text; its own line is the last one.
        last = str(error).strip().splitlines()[-1:]
        return type(error)(last[0].partition(": ")[2]) if "Original Traceback" in str(error) else error
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    if is_out_of_memory(error):
        return OutOfMemoryError(
            "out of memory outside of a step (loading, evaluating or saving): use a larger machine or fewer ranks "
            f"on it: {text}"
        )
    if is_peer_loss(error):
        return PeerLostError(f"a peer was lost: {text}")
    return Fault(f"unexpected: {text}")


def main(argv: list[str]) -> int:
    path, rank = Path(argv[0]), int(os.environ["RANK"])
    configure(stream="stderr", rank=rank)
    capture_logging(logging.INFO)
    gen_dir = path.parent
    events = EventLog(events_file(gen_dir, rank))
    stop = StopRequest(gen_dir)
    stop.listen()
    try:
        config = read_config(path)
        bind(run=config.run.name, generation=config.generation.n)
        code = run(config, stop, events)
        report = ExitReport(code=code, message=code.name.lower().replace("_", " "), step=events.last_step)
    except Exception as error:
        fault = as_fault(error)
        trace = error if fault.exit_code in (Exit.BUG, Exit.PEER_LOST) else None
        code_name = fault.exit_code.name
        get_logger().error(
            "worker ended", code=int(fault.exit_code), name=code_name, reason=str(fault), exc_info=trace
        )
        events.write("error", code=int(fault.exit_code), message=str(fault))
        report = ExitReport(code=int(fault.exit_code), message=str(fault), step=events.last_step)
    part = exit_file(gen_dir, rank).with_suffix(".part")
    part.write_text(report.to_json())
    os.replace(part, exit_file(gen_dir, rank))
    return report.code


if __name__ == "__main__":
    ending = main(sys.argv[1:])
    sys.stderr.flush()
    # Not sys.exit: after a lost peer the interpreter's clean-up can wait for connections that never answer.
    os._exit(ending)
