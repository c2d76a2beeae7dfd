"""Whole runs of real worker processes over gloo: order, equality, stops, losses of peers."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.contracts import keys
from trainer.data.order import GlobalOrder
from trainer.exit_codes import Exit
from trainer.train import gradients
from trainer.train.events import EventLog
from trainer.train.lineage import fetch_files, newest_complete
from trainer.train.saved_state import SavedState
from trainer.train.stop import StopRequest
from trainer.train.world import leave_world
from trainer.worker import run as run_worker

from tests.trainer.kit import Bench, Ranks, free_port, rank_environment, run_config, worker_config

LIMIT_SECONDS = 90
ENDLESS = 1_000_000  # steps of a run that something else ends, however long that takes on a loaded machine


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.02)


def global_sequence(steps: int, batch: int = 16) -> list[int]:
    order = GlobalOrder(96, batch, seed=5)
    return [int(number) for step in range(steps) for number in order.step_batch(step)]


def state_of(bench: Bench, run: str) -> dict[str, torch.Tensor]:
    manifest = newest_complete(bench.store, bench.bucket, run)
    assert manifest is not None
    folder = bench.root / f"{run}-{manifest.step}"
    return SavedState(fetch_files(bench.store, bench.bucket, manifest, folder)).weights()


def test_a_stopped_and_resumed_run_is_the_uninterrupted_one(trained: Bench) -> None:
    """Same samples in the same order, and on a CPU at equal world size bit-equal losses, all random draws included."""
    arguments = {"dropout": 0.3, "noise": 0.1}
    settings = {"steps": 14, "model_args": arguments, "eval_every_steps": 4}  # 6 steps an epoch
    whole = Ranks(trained, run_config("whole", **settings), 1, world=2)
    assert whole.wait() == [Exit.DONE, Exit.DONE]
    assert whole.samples() == global_sequence(14)

    held = {**settings, "model_args": {**arguments, "hold_at": 6}}
    first = Ranks(trained, run_config("parts", **held), 1, world=2)
    until(lambda: len(first.events(0, "step")) >= 5, "the fifth step")
    (first.gen_dir / "stop").write_text("notice")
    assert first.wait() == [Exit.STOPPED_SAVED, Exit.STOPPED_SAVED]
    (stopped,) = first.events(0, "stopped")
    assert stopped["saved"] and stopped["reason"] == "notice"
    assert {event["step"] for rank in (0, 1) for event in first.events(rank, "stopped")} == {stopped["step"]}
    assert (first.report(1).code, first.report(1).step) == (Exit.STOPPED_SAVED, stopped["step"])

    second = Ranks(trained, run_config("parts", **held), 2, world=2)
    assert second.wait() == [Exit.DONE, Exit.DONE]
    (started,) = second.events(0, "started")
    assert started["step"] == stopped["step"] == len(first.losses()) and "resumed" in started["message"]
    assert first.samples() + second.samples() == whole.samples()
    assert first.losses() + second.losses() == whole.losses()
    evaluations = [
        [
            (event["step"], event["evalLoss"], event["best"])
            for part in parts
            for event in part.events(0, "eval")
        ]
        for parts in ([first, second], [whole])
    ]
    assert evaluations[0] == evaluations[1] and len(evaluations[0]) == 4
    (finished,), (reference,) = second.events(0, "finished"), whole.events(0, "finished")
    for figure in ("firstLoss", "lastLoss", "evalLoss", "evalAccuracy", "epochs"):
        assert finished[figure] == reference[figure]


def test_world_size_and_accumulation_change_neither_order_nor_result(trained: Bench) -> None:
    worlds = {"one": (1, 1), "two": (2, 1), "two-accumulated": (2, 4)}
    runs = {}
    for name, (world, accumulation) in worlds.items():
        runs[name] = Ranks(trained, run_config(name, gradient_accumulation=accumulation), 1, world)
        assert set(runs[name].wait()) == {Exit.DONE}
    reference = runs["one"]
    assert reference.samples() == global_sequence(6)
    weights = state_of(trained, "one")
    for name in ("two", "two-accumulated"):
        assert runs[name].losses() == pytest.approx(reference.losses(), abs=1e-5)
        for key, value in state_of(trained, name).items():
            assert torch.allclose(value, weights[key], atol=1e-4), key  # also the gradients were the same
    assert runs["two"].samples() == reference.samples()
    assert sorted(runs["two-accumulated"].samples()) == sorted(reference.samples())


def test_a_run_goes_on_with_another_world_size(trained: Bench) -> None:
    """16 samples a step over 3 and then 2 ranks: what one rank would have done, dropout included."""
    alone = Ranks(trained, run_config("alone", steps=10, model_args={"dropout": 0.3}), 1, world=1)
    assert alone.wait() == [Exit.DONE]
    settings = {"steps": 10, "model_args": {"dropout": 0.3, "hold_at": 4}}
    first = Ranks(trained, run_config(**settings), 1, world=3)
    until(lambda: len(first.events(0, "step")) >= 3, "the third step")
    (first.gen_dir / "stop").write_text("regroup")
    assert set(first.wait()) == {Exit.STOPPED_SAVED}
    assert first.events(2, "stopped")[0]["reason"] == "regroup"
    second = Ranks(trained, run_config(**settings), 2, world=2)
    assert second.wait() == [Exit.DONE, Exit.DONE]
    assert first.samples() + second.samples() == alone.samples() == global_sequence(10)
    assert first.losses() + second.losses() == pytest.approx(alone.losses(), abs=1e-5)


def test_a_killed_rank_ends_its_peers_with_32_and_the_run_resumes_from_the_last_checkpoint(
    trained: Bench,
) -> None:
    settings = {
        "steps": 40,
        "model_args": {"step_seconds": 0.05},
        "checkpoint": {"every_seconds": 0.2, "keep": 2},
    }
    first = Ranks(trained, run_config(**settings), 1, world=2)
    until(lambda: len(first.events(0, "checkpoint")) >= 2, "two checkpoints")
    pid = first.processes[1].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert first.wait() == [Exit.PEER_LOST, -signal.SIGKILL]
    assert first.report(0).code == Exit.PEER_LOST and "peer" in first.report(0).message
    saved = newest_complete(trained.store, trained.bucket, "run")
    assert saved is not None

    corrupted = keys.checkpoint("run", saved.step, saved.files[0].name)
    fetched = trained.store.get(trained.bucket, corrupted)
    assert fetched is not None
    trained.store.put(trained.bucket, corrupted, fetched.body[:-1] + b"x")
    second = Ranks(trained, run_config(**settings), 2, world=2, node="another-node")
    assert second.wait() == [Exit.DONE, Exit.DONE]
    (fallback,), (started,) = second.events(0, "fallback"), second.events(0, "started")
    assert fallback["step"] == saved.step and "SHA-256" in fallback["message"]
    assert 0 < started["step"] < saved.step
    assert second.samples() == global_sequence(40)[started["step"] * 16 :]


def test_sigterm_is_a_stop_at_a_step_that_all_ranks_share(trained: Bench) -> None:
    settings = {"steps": ENDLESS, "model_args": {"step_seconds": 0.05}}
    ranks = Ranks(trained, run_config(**settings), 1, world=2)
    until(lambda: len(ranks.events(0, "step")) >= 2, "the second step")
    ranks.processes[1].terminate()
    assert ranks.wait() == [Exit.STOPPED_SAVED, Exit.STOPPED_SAVED]
    (stopped,) = ranks.events(0, "stopped")
    assert stopped["reason"] == "sigterm"
    saved = newest_complete(trained.store, trained.bucket, "run")
    assert saved is not None and saved.step == stopped["step"]


def break_disk_of(bench: Bench) -> None:
    """From here on every save fails at its first write."""
    local = bench.root / "node" / "runs" / "run" / "checkpoints"
    local.rename(local.with_name("away"))
    local.write_text("not a folder")


def test_a_stop_that_cannot_save_ends_with_76_where_an_older_checkpoint_is(trained: Bench) -> None:
    settings = {
        "steps": ENDLESS,
        "model_args": {"step_seconds": 0.05},
        "checkpoint": {"every_seconds": 2, "keep": 2},
    }
    ranks = Ranks(trained, run_config(**settings), 1, world=2)
    until(lambda: len(ranks.events(0, "checkpoint")) >= 1, "a checkpoint")
    break_disk_of(trained)
    (ranks.gen_dir / "stop").write_text("notice")
    assert ranks.wait() == [Exit.STOPPED_STALE, Exit.STOPPED_STALE]
    assert [event["saved"] for rank in (0, 1) for event in ranks.events(rank, "stopped")] == [False, False]
    saved = newest_complete(trained.store, trained.bucket, "run")
    assert saved is not None and saved.step == ranks.events(0, "checkpoint")[0]["step"]


def test_a_periodic_save_that_fails_ends_the_run_loudly(trained: Bench) -> None:
    settings = {
        "steps": ENDLESS,
        "model_args": {"step_seconds": 0.05},
        "checkpoint": {"every_seconds": 0.1, "keep": 2},
    }
    ranks = Ranks(trained, run_config(**settings), 1, world=2)
    until(lambda: len(ranks.events(0, "checkpoint")) >= 1, "a checkpoint")
    break_disk_of(trained)
    assert ranks.wait() == [Exit.CHECKPOINT, Exit.PEER_LOST]
    assert "cannot be written" in ranks.report(0).message


def test_a_loss_that_is_no_number_ends_with_30_and_names_step_and_rank(trained: Bench) -> None:
    ranks = Ranks(trained, run_config(model_args={"nan_at": 3}), 1, world=2)
    assert ranks.wait() == [Exit.NON_FINITE, Exit.NON_FINITE]
    assert ranks.report(0).message.startswith("loss of step 3 is not finite on ranks [0, 1]")
    assert ranks.events(0, "step")[-1]["loss"] is None
    assert newest_complete(trained.store, trained.bucket, "run") is None


def test_a_fenced_generation_ends_and_leaves_the_newer_one_alone(trained: Bench) -> None:
    settings = {
        "steps": ENDLESS,
        "model_args": {"step_seconds": 0.05},
        "checkpoint": {"every_seconds": 0.5, "keep": 2},
    }
    old = Ranks(trained, run_config(**settings), 1, world=1)
    until(lambda: len(old.events(0, "checkpoint")) >= 1, "a checkpoint")
    new = Ranks(trained, run_config(**settings), 2, world=1, node="another-node")
    assert old.wait() == [Exit.PEER_LOST]
    assert "another generation" in old.report(0).message
    (new.gen_dir / "stop").write_text("user")
    assert new.wait() == [Exit.STOPPED_SAVED]
    saved = newest_complete(trained.store, trained.bucket, "run")
    assert saved is not None and saved.generation == 2


@pytest.fixture
def single_rank(trained: Bench, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Exit]:
    """A world of one in this very process."""

    def train_here(**training: Any) -> Exit:
        for name, value in rank_environment(0, 1, free_port(), None).items():
            monkeypatch.setenv(name, value)
        config = worker_config(trained, run_config(**training), 1, 1)
        gen_dir = trained.root / "gen"
        events = EventLog(gen_dir / "events-rank0.jsonl")
        try:
            return run_worker(config, StopRequest(gen_dir), events)
        finally:
            leave_world()
            events.close()

    return train_here


def test_gradients_are_clipped_after_they_were_unscaled(
    single_rank: Callable[..., Exit], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fp16 with a real scaler: what the optimizer sees has at most the asked-for norm."""
    calls: list[str] = []
    norms: list[float] = []
    real_norm = torch.nn.utils.get_total_norm
    real_unscale, real_step = torch.amp.GradScaler.unscale_, torch.optim.AdamW.step

    def unscale(scaler: torch.amp.GradScaler, optimizer: torch.optim.Optimizer) -> None:
        calls.append("unscale")
        real_unscale(scaler, optimizer)

    def measure(values: list[torch.Tensor]) -> torch.Tensor:
        calls.append("measure")
        return real_norm(values)

    def step(optimizer: torch.optim.AdamW, *arguments: object) -> object:
        calls.append("step")
        seen = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norms.append(float(real_norm(seen)))
        return real_step(optimizer, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.amp.GradScaler, "unscale_", unscale)
    monkeypatch.setattr(gradients.nn.utils, "get_total_norm", measure)
    monkeypatch.setattr(torch.optim.AdamW, "step", step)
    assert single_rank(steps=3, precision="fp16", clip_norm=0.01) is Exit.DONE
    assert calls == ["unscale", "measure", "step"] * 3
    assert max(norms) <= 0.0101


def test_the_best_evaluation_is_pointed_at_and_its_loss_is_right(
    single_rank: Callable[..., Exit], trained: Bench
) -> None:
    assert single_rank(steps=12, eval_every_steps=3, learning_rate=0.02) is Exit.DONE
    lines = (trained.root / "gen" / "events-rank0.jsonl").read_text().splitlines()
    evaluations = [event for event in map(json.loads, lines) if event["kind"] == "eval"]
    assert [event["step"] for event in evaluations] == [3, 6, 9, 12]
    best = min(evaluations, key=lambda event: event["evalLoss"])
    fetched = trained.store.get(trained.bucket, keys.best("run"))
    assert fetched is not None
    pointer = json.loads(fetched.body)
    assert (pointer["step"], pointer["evalLoss"]) == (best["step"], best["evalLoss"])
    assert best["best"] is True and 0 <= best["evalAccuracy"] <= 1


def test_reports_are_written_where_the_agent_looks(trained: Bench) -> None:
    ranks = Ranks(trained, run_config(global_batch_size=3, gradient_accumulation=2), 1, world=2)
    assert ranks.wait() == [Exit.CONFIGURATION, Exit.CONFIGURATION]
    for rank in (0, 1):
        assert "3 is too small for 2 ranks" in ranks.report(rank).message
        (error,) = ranks.events(rank, "error")
        assert error["code"] == Exit.CONFIGURATION
    shard = Path(trained.root / "data" / "numbers" / "v1" / "manifest.json")
    shard.unlink()
    unsynced = Ranks(trained, run_config("unsynced"), 1, world=1)
    assert unsynced.wait() == [Exit.DATASET]
