"""Processes that load data: small whatever the data's size, deaf to a stop that is the trainer's, and gone with it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.data.dataset import ShardedSplit, StepSampler, make_split, step_loader
from trainer.data.manifest import DatasetName
from trainer.data.order import GlobalOrder
from trainer.data.publish import describe
from trainer.exit_codes import Exit
from trainer.train.job import Job

from tests.trainer.kit import fork_context, free_port, rank_environment, write_numbered_dataset
from tests.trainer.test_train_runs import ENDLESS, until
from tests.trainer.train_kit import IMAGES, MemorySplit, config, one_rank


def test_what_a_loader_is_given_grows_with_the_shards_and_not_with_the_samples(tmp_path: Path) -> None:
    """A list of Python objects, one a sample, would be copied page by page into each loader as it is read."""
    write_numbered_dataset(tmp_path)
    few = describe(tmp_path, DatasetName("d", "v1"))
    shards = [shard.model_copy(update={"samples": 10**9}) for shard in few.shards]
    many = few.model_copy(update={"shards": shards})
    sizes = []
    for manifest in (few, many):
        split = make_split(tmp_path, manifest, "train")
        sampler = StepSampler(split.order(64, seed=1), 0, 1, 1, 0, ENDLESS)
        sizes.append(len(pickle.dumps((split, sampler))))
    assert len(ShardedSplit(tmp_path, many, "train")) == 3 * 10**9
    assert sizes[1] < sizes[0] + 200


def signal_the_loaders(job: Job) -> None:
    """As a SIGTERM to the process group: it reaches the trainer and its loaders alike."""
    job.loader_workers = 2
    write = job.events.write

    def told(kind: Any, **fields: Any) -> None:
        write(kind, **fields)
        if kind == "step" and fields["step"] == 2:
            loaders = multiprocessing.active_children()
            assert len(loaders) == 2
            for loader in loaders:
                os.kill(loader.pid or 0, signal.SIGTERM)
            job.stop.ask()
        if kind == "step":
            time.sleep(0.05)  # a loader that dies of it is noticed

    job.events.write = told  # type: ignore[method-assign]


def test_a_sigterm_that_reaches_the_loaders_ends_no_step_and_none_of_them_outlives_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in rank_environment(0, 1, free_port(), None).items():
        monkeypatch.setenv(name, value)
    training = config(steps=ENDLESS, model="tiny-vision", dataset="pictures@v1")
    outcome = one_rank(tmp_path, training, 1, False, signal_the_loaders, False)
    assert outcome.exit_code == Exit.STOPPED_SAVED, outcome.fault
    assert outcome.of_kind("stopped")[0]["saved"] is True
    until(lambda: not multiprocessing.active_children(), "the end of the loaders")


def read_until_killed(told: str) -> None:
    multiprocessing.set_start_method(
        "fork", force=True
    )  # as in a worker: loaders are the trainer's own children
    split = MemorySplit(IMAGES, 48)
    sampler = StepSampler(GlobalOrder(48, 8, 1), 0, 1, 1, 0, ENDLESS)
    batches = iter(step_loader(split, sampler, torch.device("cpu"), 2))  # type: ignore[arg-type]
    next(batches)
    loaders = [str(loader.pid) for loader in multiprocessing.active_children()]
    Path(told + ".part").write_text(" ".join(loaders))
    Path(told + ".part").rename(told)
    while True:
        next(batches)


def test_a_trainer_that_is_killed_leaves_neither_loaders_nor_shared_memory(tmp_path: Path) -> None:
    told = tmp_path / "loaders"
    trainer = fork_context().Process(target=read_until_killed, args=(str(told),))
    trainer.start()
    until(told.exists, "two loaders")
    loaders = [int(pid) for pid in told.read_text().split()]
    assert len(loaders) == 2 and trainer.pid is not None
    trainer.kill()
    trainer.join()
    until(lambda: not any(is_alive(pid) for pid in loaders), "the end of the loaders")
    left = [path.name for pid in (trainer.pid, *loaders) for path in Path("/dev/shm").glob(f"*_{pid}_*")]
    assert left == []


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
