"""The pure parts of the training: arithmetic, schedule, precision, summary, events, stop requests."""

from __future__ import annotations

import json
import math
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer.contracts.run import TrainingConfig
from trainer.contracts.worker import SAVE_FILE, STOP_FILE, WorkerEvent
from trainer.data.dataset import StepSampler
from trainer.data.order import GlobalOrder
from trainer.errors import ConfigurationError, NonFiniteError
from trainer.exit_codes import Exit
from trainer.train.events import EventLog
from trainer.train.parallel import check_parallel
from trainer.train.plan import Plan, plan_training
from trainer.train.precision import agree_on_precision, resolve_precision
from trainer.train.schedule import rate_factor
from trainer.train.stop import StopRequest, reason_of
from trainer.train.summary import loss_summary
from trainer.train.world import World, is_peer_loss
from trainer.worker import as_fault


def training(**fields: Any) -> TrainingConfig:
    return TrainingConfig(**{"dataset": "shapes@v1", "steps": 10, **fields})


def test_steps_are_fixed_before_the_first_one() -> None:
    asked = training(steps=None, epochs=2.5, global_batch_size=64, gradient_accumulation=4)
    assert plan_training(asked, world=3, train_samples=1000) == Plan(
        total_steps=37, steps_per_epoch=15, accumulation=4
    )
    hundredths = [training(steps=None, epochs=n / 100, global_batch_size=1) for n in range(1, 300)]
    assert [plan_training(one, 1, 100).total_steps for one in hundredths] == list(range(1, 300))


@given(accumulation=st.integers(1, 4), whole=st.integers(1, 12), data=st.data())
def test_a_smaller_world_takes_more_micro_batches_and_none_that_the_whole_world_would_not_take(
    accumulation: int, whole: int, data: st.DataObject
) -> None:
    batch = whole * accumulation + data.draw(st.integers(0, 3 * whole))
    world = data.draw(st.integers(1, whole))
    asked = training(global_batch_size=batch, gradient_accumulation=accumulation)
    order = GlobalOrder(batch, batch, seed=0)

    def sizes(ranks: int) -> list[int]:
        plan = plan_training(asked, ranks, batch, whole)
        samplers = [StepSampler(order, rank, ranks, plan.accumulation, 0, 1) for rank in range(ranks)]
        return [len(micro) for sampler in samplers for micro in sampler]

    now, then = sizes(world), sizes(whole)
    assert len(then) == whole * accumulation and sum(now) == sum(then) == batch
    assert min(now) >= 1 and max(now) - min(now) <= 1
    # One more only where the even share is no larger already: a sample cannot be cut.
    assert max(now) <= max(then) + (max(then) == 1)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"global_batch_size": 1}, "1 is too small for 2 ranks x 1 accumulation steps = 2 micro-batches"),
        (
            {"global_batch_size": 15, "gradient_accumulation": 8},
            "15 is too small for 2 ranks x 8 accumulation steps = 16",
        ),
        ({"global_batch_size": 200}, "200 is more than the 100 training samples"),
        ({"steps": None}, "exactly one of steps and epochs"),
        ({"epochs": 1.0}, "exactly one of steps and epochs"),
        ({"steps": None, "epochs": 0.2}, "make no whole step"),
        ({"warmup_steps": 10}, "warmupSteps 10 must be below the 10 steps"),
    ],
)
def test_numbers_that_do_not_go_together_are_refused_with_the_arithmetic(
    fields: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        plan_training(training(**fields), world=2, train_samples=100)


def test_the_rate_rises_and_then_falls_to_nothing() -> None:
    factors = [rate_factor(step, total=100, warmup=10, kind="cosine") for step in range(101)]
    assert factors[:11] == sorted(factors[:11]) and factors[10] == 1
    assert factors[10:] == sorted(factors[10:], reverse=True)
    assert factors[55] == pytest.approx(0.5) and factors[100] == pytest.approx(0)
    assert {rate_factor(step, 100, 10, "constant") for step in range(10, 100)} == {1.0}


@pytest.mark.parametrize(
    ("wanted", "device", "capability", "name"),
    [
        ("auto", "cpu", None, "fp32"),
        ("auto", "cuda", (7, 5), "fp16"),  # T4: bf16 would be emulated
        ("auto", "cuda", (8, 0), "bf16"),
        ("auto", "cuda", (10, 3), "bf16"),
        ("fp32", "cuda", (9, 0), "fp32"),
        ("bf16", "cpu", None, "bf16"),
    ],
)
def test_precision_follows_the_hardware(wanted: Any, device: str, capability: Any, name: str) -> None:
    precision = resolve_precision(wanted, device, capability)
    assert precision.name == name
    assert precision.scaler().is_enabled() == (name == "fp16" and torch.cuda.is_available())


def test_auto_is_what_the_oldest_gpu_of_the_world_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank that scales its gradients and one that does not would average what does not go together."""

    class Mixed(World):
        def everybodys(self, word: Any) -> list[Any]:
            return [word, (7, 5)]

    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 6))
    world = Mixed(0, 2, 0, torch.device("cuda", 0), None)  # type: ignore[arg-type]
    assert agree_on_precision("auto", world).name == "fp16"
    assert agree_on_precision("bf16", world).name == "bf16"
    with pytest.raises(ConfigurationError, match="fp16, which auto is on the oldest of these GPUs, needs"):
        check_parallel(training(parallel="fsdp"), "fp16")


def test_autocast_applies_to_half_precision_only() -> None:
    weights = torch.rand(4, 4)
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        with resolve_precision(name, "cpu", None).autocast():  # type: ignore[arg-type]
            assert (weights @ weights).dtype == dtype


@settings(deadline=None)
@given(st.lists(st.floats(0, 10), min_size=1, max_size=60))
def test_the_summary_is_the_mean_of_the_first_and_of_the_last_tenth(losses: list[float]) -> None:
    tenth = max(1, len(losses) // 10)
    first, last = loss_summary(losses)
    assert first == pytest.approx(math.fsum(losses[:tenth]) / tenth)
    assert last == pytest.approx(math.fsum(losses[len(losses) - tenth :]) / tenth)


def test_a_run_without_steps_has_no_summary() -> None:
    with pytest.raises(ValueError, match="without steps"):
        loss_summary([])


def test_events_are_json_even_when_the_loss_is_no_number(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "gen" / "events-rank0.jsonl")
    log.write("step", step=1, loss=float("nan"), non_finite=True)
    log.write("eval", step=1, eval_loss=float("inf"), eval_accuracy=0.5)
    lines = (tmp_path / "gen" / "events-rank0.jsonl").read_text().splitlines()  # flushed while open
    log.close()
    first, second = (json.loads(line, parse_constant=pytest.fail) for line in lines)
    assert first["loss"] is None and first["nonFinite"] is True
    assert second["evalLoss"] is None and "loss" not in second
    assert WorkerEvent.from_json(lines[0]).step == 1


def test_a_stop_is_asked_for_by_file_or_by_sigterm(tmp_path: Path) -> None:
    stop = StopRequest(tmp_path)
    assert stop.weight() == 0
    before = signal.getsignal(signal.SIGTERM)
    try:
        stop.listen()
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # the echo of torchrun: still a stop, not a death
    finally:
        signal.signal(signal.SIGTERM, before)
    assert reason_of(stop.weight()) == "sigterm"
    (tmp_path / STOP_FILE).write_text("user\n")
    user = stop.weight()
    (tmp_path / STOP_FILE).write_text("notice")
    assert reason_of(user) == "user" and reason_of(stop.weight()) == "notice"
    assert stop.weight() > user  # the maximum over ranks keeps the notice
    (tmp_path / STOP_FILE).write_text("regroup")
    regroup = stop.weight()
    (tmp_path / STOP_FILE).write_text("")
    assert reason_of(regroup) == "regroup" and reason_of(stop.weight()) == "sigterm"
    assert 0 < regroup < stop.weight() < user  # the world's growth gives way to every other reason


def test_a_save_is_asked_for_by_file_and_taken_once(tmp_path: Path) -> None:
    ranks = [StopRequest(tmp_path), StopRequest(tmp_path)]
    assert [rank.take_save() for rank in ranks] == [False, False]
    (tmp_path / SAVE_FILE).touch()
    assert [rank.take_save() for rank in ranks] == [True, False]
    assert not (tmp_path / SAVE_FILE).exists()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (
            RuntimeError("[/pytorch/third_party/gloo/pair.cc:538] Connection closed by peer [127.0.0.1]"),
            Exit.PEER_LOST,
        ),
        (
            RuntimeError("[unbound_buffer.cc:78] Timed out waiting 600000ms for recv operation"),
            Exit.PEER_LOST,
        ),
        (RuntimeError("Application timeout caused pair closure"), Exit.PEER_LOST),
        (RuntimeError("connect [127.0.0.1]:29500: Connection refused"), Exit.PEER_LOST),
        (torch.distributed.DistBackendError("NCCL communicator was aborted"), Exit.PEER_LOST),
        (torch.distributed.DistNetworkError("the client socket has timed out"), Exit.PEER_LOST),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), Exit.OUT_OF_MEMORY),
        (MemoryError(), Exit.OUT_OF_MEMORY),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"), Exit.OUT_OF_MEMORY),
        (NonFiniteError("loss"), Exit.NON_FINITE),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), Exit.BUG),
        (KeyError("x"), Exit.BUG),
    ],
)
def test_every_exception_ends_with_a_named_code(error: Exception, code: Exit) -> None:
    assert as_fault(error).exit_code is code
    assert is_peer_loss(error) == (code is Exit.PEER_LOST)
