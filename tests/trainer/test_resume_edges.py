"""Where runs went wrong elsewhere: at the end of an epoch and of a run, in a small held-out split, in a long save.

The public reports are named by `test_public_reports`.
"""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import distributed_c10d
from trainer.data.order import GlobalOrder
from trainer.exit_codes import Exit
from trainer.train.job import Job

from tests.trainer.train_kit import TOKENS, MemorySplit, Outcome, config, train_ranks

STEPS, EPOCH = 9, 6  # steps of the run; of an epoch: 48 samples, 8 a step


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return train_ranks(tmp_path_factory.mktemp("whole"), 1, steps=STEPS)[0]


def stop_at_the_epochs_end(job: Job) -> None:
    real = job.stop.weight
    job.stop.weight = lambda: 1 if job.events.last_step == EPOCH - 1 else real()  # type: ignore[method-assign]


@pytest.mark.parametrize("world", [1, 2])
def test_a_stop_at_the_very_end_of_an_epoch_goes_on_with_the_next_one(
    tmp_path: Path, whole: Outcome, world: int
) -> None:
    first = train_ranks(tmp_path, 1, prepare=stop_at_the_epochs_end, steps=STEPS)[0]
    rest = train_ranks(tmp_path, world, generation=2, steps=STEPS)[0]
    assert first.exit_code == Exit.STOPPED_SAVED and rest.exit_code == Exit.DONE, rest.fault
    assert rest.of_kind("started")[0]["step"] == EPOCH
    sums = [step["sampleSum"] for part in (first, rest) for step in part.of_kind("step")]
    order = GlobalOrder(48, 8, config().seed)
    assert sums == [int(order.step_batch(step).sum()) for step in range(STEPS)]
    assert first.losses + rest.losses == pytest.approx(whole.losses, abs=1e-5)
    for name, value in whole.weights.items():
        torch.testing.assert_close(rest.weights[name], value, rtol=0, atol=1e-4)


def test_a_run_that_is_through_is_done_again_at_once_with_the_same_end(tmp_path: Path) -> None:
    first = train_ranks(tmp_path, 1)[0]
    again = train_ranks(tmp_path, 2, generation=2)[0]
    assert again.exit_code == Exit.DONE and again.losses == [] and again.of_kind("checkpoint") == []
    (started,), (then,), (now,) = (
        again.of_kind("started"),
        first.of_kind("finished"),
        again.of_kind("finished"),
    )
    assert started["step"] == started["totalSteps"] == 4
    assert {**now, "time": 0, "evalLoss": 0} == {**then, "time": 0, "evalLoss": 0}
    assert now["evalLoss"] == pytest.approx(then["evalLoss"], abs=1e-6)


def one_held_out_sample(job: Job) -> None:
    job.test_split = MemorySplit(TOKENS, 1)  # type: ignore[assignment]


def test_a_held_out_split_of_fewer_samples_than_ranks_is_evaluated_by_those_that_have_one(
    tmp_path: Path,
) -> None:
    told: dict[int, list[float]] = {}
    for world in (1, 2):
        outcomes = train_ranks(
            tmp_path / str(world), world, prepare=one_held_out_sample, steps=2, eval_every_steps=1
        )
        assert {outcome.exit_code for outcome in outcomes} == {Exit.DONE}
        told[world] = [event["evalLoss"] for event in outcomes[0].of_kind("eval")]
    assert told[1] == pytest.approx(told[2], abs=1e-5) and len(told[1]) == 2


def save_for_longer_than_a_step_may_take(job: Job) -> None:
    """From the last save on, a collective of gradients would give up after half a second, and rank 0 saves for two."""
    write, save = job.events.write, job.checkpoints.save

    def told(kind: Any, **fields: Any) -> None:
        write(kind, **fields)
        if kind == "pause" and fields["reason"] == "save":
            distributed_c10d._set_pg_timeout(timedelta(seconds=0.5))  # pyright: ignore[reportPrivateUsage]

    def slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(2)
        return save(*arguments, **options)

    job.events.write = told  # type: ignore[method-assign]
    job.checkpoints.save = slowly  # type: ignore[method-assign]


def test_ranks_that_wait_for_a_long_save_do_not_take_rank_0_for_lost(tmp_path: Path) -> None:
    outcomes = train_ranks(tmp_path, 2, prepare=save_for_longer_than_a_step_may_take, steps=1)
    assert [outcome.exit_code for outcome in outcomes] == [Exit.DONE, Exit.DONE], outcomes[1].fault
