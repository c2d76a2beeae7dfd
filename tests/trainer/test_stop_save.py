"""The save of a stop has 60 s: what is not done by then is given up, and does no harm when it comes late."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from trainer.errors import StoreError
from trainer.exit_codes import Exit
from trainer.store import Store
from trainer.train import saving
from trainer.train.checkpoint import Checkpoints
from trainer.train.events import EventLog
from trainer.train.lineage import newest_complete
from trainer.train.stop import StopRequest
from trainer.train.world import leave_world
from trainer.worker import run as run_worker

from tests.trainer.kit import Bench, Ranks, free_port, rank_environment, run_config, worker_config
from tests.trainer.test_train_runs import until

RUN = run_config(steps=50, checkpoint={"every_seconds": 0.001, "keep": 2})


class Stuck:
    """A world of one in this process, asked to stop, whose save for that does not get on until `release`.

    With ``older`` it has saved its first step before that, and stops after a later one.
    """

    def __init__(self, bench: Bench, patch: pytest.MonkeyPatch, older: bool) -> None:
        self.bench, self.folder = bench, bench.root / "gen"
        self.release = threading.Event()
        self.folder.mkdir()
        stop, real = self.folder / "stop", Store.upload

        def upload(store: Store, bucket: str, key: str, *rest: Any) -> None:
            if not (older and "step-00000001" in key):
                assert self.release.wait(60)
            stop.write_text("notice")
            real(store, bucket, key, *rest)

        if not older:
            stop.write_text("notice")
        patch.setattr(Store, "upload", upload)
        patch.setattr(saving, "STOP_SAVE_SECONDS", 0.3)
        for name, value in rank_environment(0, 1, free_port(), None).items():
            patch.setenv(name, value)

    def train(self) -> Exit:
        events = EventLog(self.folder / "events-rank0.jsonl")
        config = worker_config(self.bench, RUN, 1, 1)
        try:
            return run_worker(config, StopRequest(self.folder), events)
        finally:
            leave_world()
            events.close()

    def let_go(self) -> None:
        self.release.set()
        (saver,) = [thread for thread in threading.enumerate() if thread.name.startswith("save-")]
        saver.join(60)
        assert not saver.is_alive()

    def saved_step(self) -> int | None:
        manifest = newest_complete(self.bench.store, self.bench.bucket, RUN.name)
        return manifest.step if manifest else None


def test_a_save_that_takes_too_long_is_given_up_where_an_older_one_is(
    trained: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck(trained, monkeypatch, older=True)
    assert stuck.train() is Exit.STOPPED_STALE
    events = [json.loads(line) for line in (stuck.folder / "events-rank0.jsonl").read_text().splitlines()]
    step = events[-1]["step"]
    assert events[-1]["kind"] == "stopped" and events[-1]["saved"] is False and step > 1
    (error,) = [event for event in events if event["kind"] == "error"]
    assert error["message"] == f"the checkpoint of step {step} was not done within 0.3 s"
    assert stuck.saved_step() == 1
    stuck.let_go()
    assert stuck.saved_step() == step  # late, and complete


def test_a_late_save_does_not_touch_what_a_newer_generation_has_begun(
    trained: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = Stuck(trained, monkeypatch, older=True)
    assert stuck.train() is Exit.STOPPED_STALE
    newer = Checkpoints(trained.store, trained.bucket, RUN, 2, 1, trained.root / "other" / "checkpoints")
    begun = newer.begin(1, lambda step, why: pytest.fail(f"{step}: {why}"), lambda _: None)
    assert begun is not None and begun.step == 1
    stuck.let_go()
    assert stuck.saved_step() == 1


def test_without_an_older_checkpoint_the_end_says_so(trained: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = Stuck(trained, monkeypatch, older=False)
    with pytest.raises(StoreError, match="step 1 was not done within"):
        stuck.train()
    stuck.let_go()


def test_a_stop_does_not_wait_for_an_evaluation_and_the_resume_catches_up(trained: Bench) -> None:
    settings = {"steps": 8, "eval_every_steps": 1, "model_args": {"hold_at": 1}}
    first = Ranks(trained, run_config(**settings), 1, world=1)
    until(lambda: bool(first.events(0, "started")), "the start")
    (first.gen_dir / "stop").write_text("notice")
    assert first.wait() == [Exit.STOPPED_SAVED]
    kinds = [event["kind"] for event in first.events(0)]
    assert kinds[-4:] == ["step", "pause", "checkpoint", "stopped"]
    (saved,) = first.events(0, "checkpoint")
    assert saved["stoppedSeconds"] == saved["seconds"]  # nothing went on meanwhile
    second = Ranks(trained, run_config(**settings), 2, world=1)
    assert second.wait() == [Exit.DONE]
    assert [event["kind"] for event in second.events(0)][:3] == ["started", "pause", "eval"]
    evaluated = [event["step"] for ranks in (first, second) for event in ranks.events(0, "eval")]
    assert evaluated == list(range(1, 9))
