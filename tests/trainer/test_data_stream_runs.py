"""A streamed training of real worker processes: prepared by the agent's step, stopped, and gone on with elsewhere."""

from __future__ import annotations

import pytest
from trainer.agent import prepare
from trainer.contracts.run import RunConfig
from trainer.contracts.worker import WorkerConfig
from trainer.data.order import WindowedOrder
from trainer.data.sync import SPARE_BYTES, stream_dir
from trainer.errors import DatasetError
from trainer.exit_codes import Exit

from tests.trainer.kit import Bench, Ranks, run_config, worker_config
from tests.trainer.test_train_runs import until

STEPS = 9  # one and a half epochs of 96 samples in three shards


def streamed(name: str) -> RunConfig:
    held = {"hold_at": 4}
    return run_config(name, data="stream", stream_window_shards=1, steps=STEPS, model_args=held)


@pytest.fixture
def prepared(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> WorkerConfig:
    """A node whose agent has made a streamed run ready; no copy of the training shards is on it."""
    bench.publish()
    config = worker_config(bench, streamed("streamed"), 1, 2)
    monkeypatch.setattr(prepare, "data_dir", lambda *_given: bench.root / "streams")
    prepare.prepare(bench.store, config.document, config.run, bench.root / "state")
    (bench.root / "data").rename(bench.root / "copy")
    (bench.root / "streams").rename(bench.root / "data")
    return config


def test_a_run_that_is_cut_and_goes_on_in_another_world_reads_the_streamed_order(
    bench: Bench, prepared: WorkerConfig
) -> None:
    base = stream_dir(bench.root / "data", "streamed")
    assert sorted(path.name for path in (base / "dataset").iterdir()) == ["manifest.json", "test-0.npz"]
    first = Ranks(bench, prepared.run, 1, world=2)
    until(lambda: len(first.events(0, "step")) >= 3, "the third step")
    (first.gen_dir / "stop").write_text("notice")
    assert first.wait() == [Exit.STOPPED_SAVED] * 2
    second = Ranks(bench, prepared.run, 2, world=3)
    assert second.wait() == [Exit.DONE] * 3
    assert len(first.losses()) + len(second.losses()) == STEPS
    order = WindowedOrder(96, 16, 5, (32, 32, 32), 1)
    assert first.samples() + second.samples() == [
        n for s in range(STEPS) for n in order.step_batch(s).tolist()
    ]
    assert sorted(path.name for path in base.iterdir()) == ["dataset", "gen-0002"]
    (finished,) = second.events(0, "finished")
    assert finished["evalLoss"] is not None, "held-out samples are read from their copy"


def test_room_for_the_windows_is_asked_for_before_a_streamed_run_starts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from types import SimpleNamespace

    bench.publish()
    config = worker_config(bench, streamed("streamed"), 1, 2)
    monkeypatch.setattr(prepare, "data_dir", lambda *_given: bench.root / "streams")
    monkeypatch.setattr("shutil.disk_usage", lambda _path: SimpleNamespace(free=SPARE_BYTES + 2000))
    with pytest.raises(DatasetError, match=r"numbers@v1 needs .*streamWindowShards"):
        prepare.prepare(bench.store, config.document, config.run, bench.root / "state")
