"""Killed at any stage of a save, a run goes on from its newest complete checkpoint, into the very same losses.

A few stages, drawn by a seed, are part of ``make test``, all of ``make faults``: SAVE_SWEEP=all tries every one,
SAVE_SWEEP=<number> draws others. The process dies as one that is killed with -9 does: nothing of it is written, closed
or told any more.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.exit_codes import Exit
from trainer.file_store import FileStore
from trainer.train import checkpoint, checkpoint_disk
from trainer.train.job import Job
from trainer.train.lineage import newest_complete
from trainer.train.snapshot import HostCopy

from tests.trainer.kit import fork_context, free_port, rank_environment
from tests.trainer.train_kit import Outcome, config, one_rank, train_ranks

STEPS, KILLED = 7, 9
# A save of step 4 in which those of the steps 1 to 3 are complete; keep is 2, so it prunes step 2. In the order in
# which they come; a stage is died at before it is begun or after it is done.
SAVED_STEP = 4
STAGES = (
    "snapshot",
    "write",
    "sync",
    "rename",
    "hash",
    "upload state",
    "put manifest",
    "put latest",
    "list",
    "delete manifest",
    "delete state",
)
POINTS = [(stage, when) for stage in STAGES for when in ("before", "after")]
COMPLETE_FROM = POINTS.index(("put manifest", "after"))
DRAWN = 3
FIELDS: dict[str, Any] = {
    "steps": STEPS,
    "model_args": {"layers": 1, "heads": 2, "width": 16, "dropout": 0.2},
    "checkpoint": {"every_seconds": 0.000001, "keep": 2},
}


def chosen() -> list[tuple[str, str]]:
    asked = os.environ.get("SAVE_SWEEP", "1")
    return POINTS if asked == "all" else random.Random(int(asked)).sample(POINTS, DRAWN)


def one_save_a_step(job: Job) -> None:
    """Each save is done before the next step, so that it is known what is complete when the process dies."""
    real = job.saver.check

    def check() -> bool:
        if job.saver._thread is not None:
            job.saver._thread.join()
        return real()

    job.saver.check = check  # type: ignore[method-assign]


class KillAt:
    """Every stage goes through here; the process is gone at the chosen one."""

    def __init__(self, stage: str, when: str) -> None:
        self.point = (stage, when)

    def __call__(self, job: Job) -> None:
        one_save_a_step(job)
        step = 0

        def stage_of(
            name: str, real: Callable[..., Any], applies: Callable[..., bool] = lambda *_: True
        ) -> Any:
            def stage(*given: Any, **options: Any) -> Any:
                here = name == self.point[0] and step == SAVED_STEP and applies(*given)
                if here and self.point[1] == "before":
                    os._exit(KILLED)
                answer = real(*given, **options)
                if here:
                    os._exit(KILLED)
                return answer

            return stage

        def key_ends(end: str) -> Callable[..., bool]:
            return lambda _bucket, key, *_: key.endswith(end)

        def begin_step(*_: Any) -> None:
            nonlocal step
            step += 1

        take, store = HostCopy.take, FileStore

        def counted_take(room: HostCopy, *given: Any) -> Any:
            begin_step()
            return stage_of("snapshot", take)(room, *given)

        HostCopy.take = counted_take  # type: ignore[method-assign]
        checkpoint.write_state = stage_of("write", checkpoint.write_state)
        checkpoint_disk.fsync_dir = stage_of("sync", checkpoint_disk.fsync_dir)
        checkpoint_disk.os.replace = stage_of(  # type: ignore[assignment]
            "rename", os.replace, lambda source, _target: str(source).endswith(f"step-{SAVED_STEP:08d}.tmp")
        )
        checkpoint.sha256_of = stage_of("hash", checkpoint.sha256_of)
        own = job.checkpoints._store
        assert isinstance(own, store)
        own.upload = stage_of("upload state", own.upload)  # type: ignore[method-assign]
        put = stage_of("put manifest", own.put, key_ends("manifest.json"))
        own.put = stage_of("put latest", put, key_ends("latest"))  # type: ignore[method-assign]
        own.list_objects = stage_of("list", own.list_objects)  # type: ignore[method-assign]
        delete = stage_of("delete manifest", own.delete, key_ends("manifest.json"))
        own.delete = stage_of("delete state", delete, key_ends(".distcp"))  # type: ignore[method-assign]


def _die(root: str, environment: dict[str, str], stage: str, when: str) -> None:
    os.environ.update(environment)
    torch.set_num_threads(1)
    one_rank(Path(root), config(**FIELDS), 1, False, KillAt(stage, when), False)
    os._exit(0)  # the stage never came


def train_until_killed(root: Path, stage: str, when: str) -> None:
    environment = rank_environment(0, 1, free_port(), None)
    process = fork_context().Process(target=_die, args=(str(root), environment, stage, when))
    process.start()
    process.join(60)
    assert process.exitcode == KILLED, f"{stage}: expected to be killed, ended with {process.exitcode}"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Outcome]:
    outcome = train_ranks(tmp_path_factory.mktemp("whole"), 1, prepare=one_save_a_step, **FIELDS)[0]
    assert len(outcome.losses) == STEPS
    yield outcome


@pytest.mark.parametrize("point", chosen(), ids=" ".join)
def test_killed_at_a_stage_of_a_save_the_run_goes_on_from_the_newest_complete_one(
    tmp_path: Path, undisturbed: Outcome, point: tuple[str, str]
) -> None:
    train_until_killed(tmp_path, *point)
    expected = SAVED_STEP if POINTS.index(point) >= COMPLETE_FROM else SAVED_STEP - 1
    found = newest_complete(FileStore(tmp_path / "store"), "bucket", "run")
    assert found is not None and (found.step, found.generation) == (expected, 1)

    rest = train_ranks(tmp_path, 1, generation=2, prepare=one_save_a_step, **FIELDS)[0]
    assert rest.exit_code == Exit.DONE, rest.fault
    assert rest.of_kind("fallback") == [] and rest.of_kind("started")[0]["step"] == expected
    assert rest.losses == undisturbed.losses[expected:]
    last = newest_complete(FileStore(tmp_path / "store"), "bucket", "run")
    assert last is not None and (last.step, last.generation) == (STEPS, 2)
    assert not list((tmp_path / "checkpoints").glob("*.tmp"))
