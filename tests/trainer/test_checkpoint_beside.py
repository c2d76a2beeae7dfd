"""Saves beside the training: what is saved is the step's own state, one at a time, and nobody waits for it."""

from __future__ import annotations

import json
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from trainer.errors import CheckpointError
from trainer.exit_codes import Exit
from trainer.store import Store
from trainer.train.events import EventLog
from trainer.train.job import Job
from trainer.train.lineage import newest_complete
from trainer.train.saved_state import SavedState
from trainer.train.saving import Saver
from trainer.train.snapshot import HostCopy
from trainer.train.state import Part, TrainState
from trainer.train.stop import StopRequest
from trainer.train.world import leave_world
from trainer.worker import run as run_worker

from tests.trainer.kit import Bench, free_port, rank_environment, run_config, worker_config
from tests.trainer.test_train_features import PICTURES
from tests.trainer.test_train_runs import until
from tests.trainer.train_kit import train_ranks


def training_state() -> TrainState:
    """After one step, so that the optimizer has moments."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
    state = TrainState(model, optimizer, scheduler, torch.amp.GradScaler("cpu", enabled=False))
    train_one_step(state)
    return state


def train_one_step(state: TrainState) -> None:
    for parameter in state.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    state.optimizer.step()
    state.scheduler.step()
    state.step += 1
    state.losses.append(1.0 / state.step)


def plainly(part: Part) -> tuple[dict[str, Any], dict[str, Any]]:
    return {name: value.tolist() for name, value in part.values.items()}, part.plain


def test_later_steps_do_not_change_what_is_saved() -> None:
    state = training_state()
    copy, before = HostCopy().take(state.capture()), plainly(state.capture())
    train_one_step(state)
    assert plainly(copy) == before != plainly(state.capture())


def test_a_copy_shares_no_memory_with_the_state_and_lies_as_it_did() -> None:
    state = training_state()
    part = state.capture()
    copy = HostCopy().take(part)
    for name, value in part.values.items():
        assert copy.values[name].data_ptr() != value.data_ptr(), name
        assert copy.values[name].stride() == value.stride(), name


def test_memory_is_asked_for_once_and_again_where_shapes_change() -> None:
    room, first = HostCopy(), torch.rand(4, 4)

    def take(value: torch.Tensor) -> torch.Tensor:
        return room.take(Part({"a": value}, {"a": value}, {})).values["a"]

    address = take(first).data_ptr()
    assert take(first + 1).data_ptr() == address
    assert torch.equal(take(torch.ones(2, 8)), torch.ones(2, 8))


def nothing() -> Part:
    return Part({}, {}, {})


def test_one_save_at_a_time_and_its_fault_is_raised_once_on_the_callers_thread() -> None:
    saver, go = Saver(), threading.Event()

    def full(_state: Any) -> None:
        assert go.wait(60)
        raise CheckpointError("disk full")

    saver.begin(4, nothing, full)
    saver.let_copy()
    assert saver.check() and saver.step == 4
    with pytest.raises(RuntimeError, match="step 4 is still under way"):
        saver.begin(5, nothing, full)
    with pytest.raises(TimeoutError):
        saver.wait(0.01)
    go.set()
    with pytest.raises(CheckpointError, match="disk full"):
        saver.wait()
    assert not saver.check()


def test_a_save_works_on_the_gpu_of_its_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread begins on GPU 0, and what is copied from another GPU would be written before it is there."""
    chosen: list[tuple[int, str]] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    name = lambda: threading.current_thread().name  # noqa: E731
    monkeypatch.setattr(torch.cuda, "set_device", lambda gpu: chosen.append((gpu, name())))
    seen: list[Any] = []
    saver = Saver()
    saver.begin(4, nothing, lambda _: seen.extend(chosen))
    saver.wait()
    assert seen == [(3, "save-4")]


class Here:
    """A world of one in this process, whose uploads of states wait for `release`."""

    def __init__(self, bench: Bench, patch: pytest.MonkeyPatch) -> None:
        self.bench, self.folder, self.release = bench, bench.root / "gen", threading.Event()
        self.waiting: list[str] = []
        real = Store.upload

        def upload(store: Store, bucket: str, key: str, *rest: Any) -> None:
            self.waiting.append(key)
            assert self.release.wait(60)
            real(store, bucket, key, *rest)

        patch.setattr(Store, "upload", upload)
        for name, value in rank_environment(0, 1, free_port(), None).items():
            patch.setenv(name, value)

    def train(self, **training: Any) -> Exit:
        events = EventLog(self.folder / "events-rank0.jsonl")
        config = worker_config(self.bench, run_config(**training), 1, 1)
        try:
            return run_worker(config, StopRequest(self.folder), events)
        finally:
            leave_world()
            events.close()

    def events(self) -> list[dict[str, Any]]:
        path = self.folder / "events-rank0.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def here(trained: Bench, monkeypatch: pytest.MonkeyPatch) -> Here:
    return Here(trained, monkeypatch)


def release_after(here: Here, step: int) -> threading.Thread:
    def steps_done() -> bool:
        return any(event["kind"] == "step" and event["step"] >= step for event in here.events())

    def release() -> None:
        until(steps_done, f"step {step} during a save")
        here.release.set()

    thread = threading.Thread(target=release, daemon=True)
    thread.start()
    return thread


def test_the_loop_goes_on_while_a_save_is_under_way_and_the_next_one_waits_for_it(here: Here) -> None:
    release_after(here, 6)
    settings = {
        "steps": 9,
        "checkpoint": {"every_seconds": 0.001, "keep": 20},
        "model_args": {"dropout": 0.3},
    }
    assert here.train(**settings) is Exit.DONE
    events = here.events()
    saves = [event for event in events if event["kind"] == "checkpoint"]
    assert saves[0]["step"] == 1 and saves[1]["step"] >= 7 and saves[-1]["step"] == 9
    place = events.index(saves[0])
    assert [event["step"] for event in events[:place] if event["kind"] == "step"][:6] == [1, 2, 3, 4, 5, 6]
    (told,) = [event for event in events[:place] if event["kind"] == "note"]  # once, not at every step
    assert told["message"] == "the next checkpoint waits for that of step 1, which is still under way"
    assert saves[0]["stoppedSeconds"] < saves[0]["seconds"]


def test_what_was_saved_beside_later_steps_is_the_state_of_its_own_step(here: Here) -> None:
    """The first checkpoint, written while six more steps were done, resumes into the very losses of those steps."""
    release_after(here, 7)
    fields: dict[str, Any] = {
        "checkpoint": {"every_seconds": 0.001, "keep": 20},
        "model_args": {"dropout": 0.3},
    }
    assert here.train(steps=7, **fields) is Exit.DONE
    folder = here.bench.root / "node" / "runs" / "run" / "checkpoints" / "step-00000001" / "g0001"
    saved = SavedState(folder)
    steps = {name: torch.tensor(0.0) for name in saved.sizes if name.endswith(".step")}
    losses = torch.zeros(1, dtype=torch.float64)
    saved.fill({"losses": losses, **steps})
    assert saved.plain["step"] == 1 and losses.tolist() == [here.events()[1]["loss"]]
    assert steps and all(float(step) == 1 for step in steps.values())


def test_a_save_that_fails_beside_the_training_ends_it_at_a_step(
    trained: Bench, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainer.train.saved_state.torch.save", full)
    with pytest.raises(CheckpointError, match=r"step 1 cannot be written .* No space left on device"):
        here.train(
            steps=400, checkpoint={"every_seconds": 0.001, "keep": 2}, model_args={"step_seconds": 0.01}
        )
    assert newest_complete(trained.store, trained.bucket, "run") is None


def test_a_best_save_waits_for_the_periodic_one_and_is_pointed_at(here: Here) -> None:
    def one_waits() -> bool:
        return bool(here.waiting) and any(event["kind"] == "eval" for event in here.events())

    def release() -> None:
        until(one_waits, "an evaluation while a save is under way")
        here.release.set()

    threading.Thread(target=release, daemon=True).start()
    settings = {"steps": 3, "eval_every_steps": 2, "checkpoint": {"every_seconds": 0.001, "keep": 2}}
    assert here.train(**settings) is Exit.DONE
    best = json.loads((here.bench.store.get(here.bench.bucket, "runs/run/best") or pytest.fail()).body)
    evaluations = {event["step"]: event["evalLoss"] for event in here.events() if event["kind"] == "eval"}
    assert best["evalLoss"] == min(evaluations.values()) == evaluations[best["step"]]


def test_weights_wait_for_the_copy_and_statistics_are_those_of_the_step(tmp_path: Path) -> None:
    """A copy that is made after the next step's backward pass: statistics such as BatchNorm's have moved by then."""
    settings = {**PICTURES, "checkpoint": {"every_seconds": 3600, "keep": 9}}
    whole = train_ranks(tmp_path / "whole", 1, prepare=count_passes, **settings)[0]
    train_ranks(tmp_path / "parts", 1, prepare=save_after_2_slowly, **settings)
    shutil.rmtree(tmp_path / "parts" / "store" / "bucket" / "runs" / "run" / "checkpoints" / "step-00000004")
    (tmp_path / "parts" / "store" / "bucket" / "runs" / "run" / "latest").unlink()
    shutil.rmtree(tmp_path / "parts" / "store" / "bucket" / "runs" / "run" / "best", ignore_errors=True)
    rest = train_ranks(tmp_path / "parts", 1, generation=2, prepare=count_passes, **settings)[0]
    assert rest.fault is None and rest.of_kind("started")[0]["step"] == 2
    assert rest.losses == whole.losses[2:]
    for name, value in whole.weights.items():
        assert torch.equal(rest.weights[name], value), name


def count_passes(job: Job) -> None:
    """A statistic of the model: how many batches it was shown."""
    job.model.register_buffer("shown", torch.zeros(1))

    def count(model: torch.nn.Module, *_: object) -> None:
        model.get_buffer("shown").add_(int(model.training))

    job.model.register_forward_hook(count)


def save_after_2_slowly(job: Job) -> None:
    """The copy begins when the next step has come to its update, if that waits, and half a second later if not."""
    count_passes(job)
    waiting = threading.Event()
    let_copy, take = job.saver.let_copy, job.saver.room.take

    def tell_and_wait() -> None:
        waiting.set()
        let_copy()

    def late(*given: Any) -> Any:
        waiting.clear()
        waiting.wait(0.5)
        time.sleep(0.05)
        return take(*given)

    job.saver.let_copy = tell_and_wait  # type: ignore[method-assign]
    job.saver.room.take = late  # type: ignore[method-assign]
    job.stop.take_save = lambda: job.events.last_step == 1  # type: ignore[method-assign]
