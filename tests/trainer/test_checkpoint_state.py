"""What a state holds outlives a save: the scaler of fp16 gradients, and another precision on another machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainer.train.job import Job
from trainer.train.precision import Precision
from trainer.train.saved_state import SavedState, write_state
from trainer.train.state import TrainState
from trainer.train.world import Writers

from tests.trainer.test_train_features import stop_after_2
from tests.trainer.train_kit import train_ranks


def state_in(precision: Any) -> TrainState:
    model = nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    scaler = Precision(precision, "cpu").scaler()
    return TrainState(model, optimizer, scheduler, scaler, precision=precision)


def through_a_file(state: TrainState, path: Path) -> Any:
    write_state(path, state.capture(), Writers())
    return SavedState(path)


def test_the_gradient_scaler_goes_on_where_it_was(tmp_path: Path) -> None:
    state = state_in("fp16")
    loss = state.model(torch.ones(1, 4)).sum()
    state.scaler.scale(loss * float("inf")).backward()
    state.scaler.step(state.optimizer)  # an overflow: the scale is halved
    state.scaler.update()
    assert state.scaler.get_scale() == 32768.0
    resumed = state_in("fp16")
    assert resumed.scaler.get_scale() == 65536.0
    assert resumed.restore(through_a_file(state, tmp_path / "state")) is None
    assert resumed.scaler.get_scale() == 32768.0


@pytest.mark.parametrize(("before", "now"), [("fp32", "bf16"), ("bf16", "fp16"), ("fp16", "fp32")])
def test_another_precision_is_told_and_weights_are_taken_as_they_are(
    tmp_path: Path, before: str, now: str
) -> None:
    state, resumed = state_in(before), state_in(now)
    told = resumed.restore(through_a_file(state, tmp_path / "state"))
    assert told == f"steps compute in {now} from here on, in {before} before; weights are fp32"
    for one, other in zip(state.model.parameters(), resumed.model.parameters(), strict=True):
        assert one.dtype == other.dtype == torch.float32 and torch.equal(one, other)
    assert resumed.scaler.is_enabled() == (now == "fp16")


def as_another_machine(job: Job) -> None:
    """Where `precision: auto` is bf16."""
    job.precision = Precision("bf16", "cpu")


def test_a_run_goes_on_in_bf16_where_it_was_fp32(tmp_path: Path) -> None:
    whole = train_ranks(tmp_path / "whole", 1)[0]
    train_ranks(tmp_path / "parts", 1, prepare=stop_after_2)
    rest = train_ranks(tmp_path / "parts", 1, generation=2, prepare=as_another_machine)[0]
    assert rest.fault is None and rest.of_kind("started")[0]["step"] == 2
    (note,) = rest.of_kind("note")
    assert note["message"].startswith("steps compute in bf16")
    assert rest.losses == pytest.approx(whole.losses[2:], abs=0.05) and rest.losses != whole.losses[2:]
