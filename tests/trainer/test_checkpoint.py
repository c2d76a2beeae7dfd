"""The checkpoint protocol: complete or absent, one line of descent, never a newer one lost."""

from __future__ import annotations

import shutil
import threading
from collections import namedtuple
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from trainer.contracts import keys
from trainer.contracts.manifests import LatestPointer
from trainer.errors import CheckpointError, ConfigurationError, FencedError
from trainer.exit_codes import Exit
from trainer.store import Store
from trainer.train.checkpoint import Checkpoints
from trainer.train.lineage import fetch_files, newest_complete, read_line
from trainer.train.saved_state import SavedState
from trainer.train.state import Part

from tests.trainer.kit import Bench, run_config


class Killed(Exception):
    """The process is gone at this point."""


class DyingStore:
    """A store whose process dies before (or just after) the n-th change it makes."""

    def __init__(self, store: Store, changes: int, after: bool) -> None:
        self._store, self._left, self._after = store, changes, after
        self._lock = threading.Lock()

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if name not in ("put", "upload", "delete"):
            return call

        def change(*arguments: Any, **options: Any) -> Any:
            with self._lock:
                self._left -= 1
                left = self._left
            if left < 0 or (left == 0 and not self._after):
                raise Killed
            answer = call(*arguments, **options)
            if left == 0:
                raise Killed
            return answer

        return change


class Term:
    """One generation's checkpoints with a tiny state in which `value` is the step."""

    def __init__(
        self, bench: Bench, generation: int, node: str = "node", store: Any = None, **training: Any
    ) -> None:
        run = run_config(**training)
        local = bench.root / node / "checkpoints"
        self.bench, self.run = bench, run.name
        self.checkpoints = Checkpoints(store or bench.store, bench.bucket, run, generation, 2, local)
        self.fallbacks: list[tuple[int, str]] = []

    def begin(self, expected_bytes: int = 1000) -> int | None:
        value = torch.tensor(-1)
        found = self.checkpoints.begin(
            expected_bytes,
            lambda step, why: self.fallbacks.append((step, why)),
            lambda saved: saved.fill({"value": value}),
        )
        if found is None:
            return None
        assert value.item() == found.step
        return found.step

    def save(self, step: int) -> Any:
        value = {"value": torch.tensor(step)}
        return self.checkpoints.save(step, step * 16, step / 6, Part(value, value, {"step": step}))

    def steps(self) -> list[int]:
        """Steps whose manifest is in the bucket, newest first."""
        return [
            manifest.step for manifest in read_line(self.bench.store, self.bench.bucket, self.run).manifests
        ]

    def pointer(self, key: str) -> LatestPointer:
        fetched = self.bench.store.get(self.bench.bucket, key)
        assert fetched is not None
        return LatestPointer.from_json(fetched.body)


def corrupt(bench: Bench, key: str) -> None:
    fetched = bench.store.get(bench.bucket, key)
    assert fetched is not None
    body = bytearray(fetched.body)
    body[len(body) // 2] ^= 1
    bench.store.put(bench.bucket, key, bytes(body))


def test_a_fresh_run_starts_fresh_and_a_later_generation_where_it_stopped(
    bench: Bench, tmp_path: Path
) -> None:
    first = Term(bench, 1)
    assert first.begin() is None and newest_complete(bench.store, bench.bucket, "run") is None
    manifest = first.save(4)
    assert (manifest.generation, manifest.samples_consumed, manifest.world_size) == (1, 64, 2)
    assert newest_complete(bench.store, bench.bucket, "run") == manifest
    saved = SavedState(fetch_files(bench.store, bench.bucket, manifest, tmp_path / "fetched"))
    saved.fill({"value": (value := torch.tensor(0))})
    assert (saved.plain, value.item()) == ({"step": 4}, 4)
    assert Term(bench, 2, node="another-node").begin() == 4


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("change", range(1, 10))
def test_death_at_any_stage_of_a_save_leaves_a_resumable_run(bench: Bench, change: int, after: bool) -> None:
    """Changes of a save: three files of the state, manifest, `latest`, then pruning (manifest, files)."""
    term = Term(bench, 1)
    term.begin()
    for step in (2, 4):
        term.save(step)
    term.checkpoints._store = DyingStore(bench.store, change, after)  # type: ignore[assignment]
    with pytest.raises(Killed):
        term.save(6)
    complete = change > 4 or (change == 4 and after)  # from its manifest on, the checkpoint exists
    next_term = Term(bench, 2)
    assert next_term.begin() == (6 if complete else 4)
    assert next_term.fallbacks == []
    next_term.save(8)
    assert Term(bench, 3).begin() == 8
    assert next_term.steps()[0] == 8 and len(next_term.steps()) == 2


def test_death_while_the_file_is_written_leaves_nothing_under_a_good_name(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = Term(bench, 1)
    term.begin()
    term.save(2)

    def half(_state: Any, file: Any) -> None:
        file.write(b"half of it")
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", half)  # by which DCP writes each tensor
        with pytest.raises(Killed):
            term.save(4)
    local = bench.root / "node" / "checkpoints"
    assert (local / "step-00000004.tmp").exists() and not (local / "step-00000004").exists()
    assert Term(bench, 2).begin() == 2
    assert not (local / "step-00000004.tmp").exists()


def test_a_corrupted_newest_checkpoint_falls_back_and_says_so(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    for step in (2, 4):
        manifest = term.save(step)
    corrupt(bench, keys.checkpoint("run", 4, manifest.files[0].name))
    shutil.rmtree(bench.root / "node" / "checkpoints" / "step-00000004")
    resumed = Term(bench, 2)
    assert resumed.begin() == 2
    ((step, why),) = resumed.fallbacks
    assert step == 4 and "SHA-256" in why
    assert resumed.pointer(keys.latest("run")).step == 2
    resumed.save(4)  # reached again: the broken one is replaced
    assert Term(bench, 3).begin() == 4


def test_a_corrupted_manifest_falls_back_too(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    for step in (2, 4):
        term.save(step)
    bench.store.put(bench.bucket, keys.checkpoint("run", 4, "manifest.json"), b"{}")
    resumed = Term(bench, 2)
    assert resumed.begin() == 2
    assert resumed.fallbacks == [(4, "its manifest cannot be read")]
    resumed.save(4)
    assert Term(bench, 3).begin() == 4


def test_when_no_checkpoint_is_usable_the_run_does_not_start_over(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    manifest = term.save(2)
    bench.store.delete(bench.bucket, keys.checkpoint("run", 2, manifest.files[0].name))
    with pytest.raises(CheckpointError, match="none is usable") as raised:
        Term(bench, 2, node="another-node").begin()
    assert raised.value.exit_code is Exit.CHECKPOINT


def test_the_local_copy_spares_the_download(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    manifest = term.save(2)
    bench.store.delete(bench.bucket, keys.checkpoint("run", 2, manifest.files[0].name))
    assert Term(bench, 2).begin() == 2


def test_a_new_term_ends_the_writer_of_the_old_one(bench: Bench) -> None:
    old = Term(bench, 1)
    old.begin()
    old.save(2)
    new = Term(bench, 2, node="another-node")
    assert new.begin() == 2
    with pytest.raises(FencedError, match="moved by another generation") as raised:
        old.save(4)
    assert raised.value.exit_code is Exit.PEER_LOST
    assert new.pointer(keys.latest("run")).generation == 2


class Meanwhile:
    """A store whose first call of that name finds the older generation at work."""

    def __init__(self, store: Store, call: str, work: Callable[[], None]) -> None:
        self._store, self._call, self._work = store, call, [work]

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        def called(*arguments: Any, **options: Any) -> Any:
            answer = real(*arguments, **options) if name == "list_objects" else None
            while self._work:
                self._work.pop()()
            return answer if answer is not None else real(*arguments, **options)

        return called if name == self._call else real


@pytest.mark.parametrize(("call", "resumed"), [("download", 4), ("list_objects", 10)])
def test_an_old_writer_that_still_saves_takes_nothing_away_from_the_term_that_begins(
    bench: Bench, call: str, resumed: int
) -> None:
    """Its saves prune what is being read, unless it is fenced off before; it may yet move `latest` before that."""
    old = Term(bench, 1)
    old.begin()
    for step in (2, 4):
        old.save(step)

    def save_on() -> None:
        for step in (6, 8, 10):
            with suppress(FencedError):
                old.save(step)

    new = Term(bench, 2, node="another-node", store=Meanwhile(bench.store, call, save_on))
    assert new.begin() == resumed and new.fallbacks == []
    with pytest.raises(FencedError):
        old.save(12)


def test_a_generation_that_comes_late_does_not_end_the_newer_one(bench: Bench) -> None:
    first, new = Term(bench, 1), Term(bench, 3, node="another-node")
    first.begin()
    first.save(2)
    new.begin()
    new.save(4)
    with pytest.raises(FencedError, match="run run is at generation 3; this one ends"):
        Term(bench, 2, node="late").begin()
    new.save(6)
    assert newest_complete(bench.store, bench.bucket, "run").generation == 3  # type: ignore[union-attr]


def test_what_a_fenced_writer_left_ahead_is_not_in_the_line(bench: Bench) -> None:
    old = Term(bench, 1)
    old.begin()
    old.save(2)
    new = Term(bench, 2, node="another-node")
    new.begin()
    with pytest.raises(FencedError):
        old.save(4)
    assert new.steps() == [2]  # step 4 of generation 1 has a manifest, and does not count
    manifest = new.save(4)
    assert manifest.generation == 2 and new.steps() == [4, 2]
    assert Term(bench, 3, node="third").begin() == 4


def test_an_old_writer_does_not_replace_a_newer_generations_checkpoint(bench: Bench) -> None:
    old = Term(bench, 1)
    old.begin()
    old.save(2)
    new = Term(bench, 2, node="another-node")
    new.begin()
    manifest = new.save(4)
    with pytest.raises(FencedError, match="written by another generation"):
        old.save(4)
    assert newest_complete(bench.store, bench.bucket, "run") == manifest
    assert Term(bench, 3, node="third").begin() == 4


def test_two_fresh_halves_become_one_line(bench: Bench) -> None:
    old, new = Term(bench, 1), Term(bench, 2, node="another-node")
    assert old.begin() is None and new.begin() is None
    old.save(3)
    new.save(2)  # nothing was there to fence at its start, yet the newer generation wins
    with pytest.raises(FencedError):
        old.save(4)
    assert new.steps() == [2]
    assert Term(bench, 3, node="third").begin() == 2


def test_pruning_keeps_two_the_best_and_what_latest_names(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    for step in (1, 2, 3, 4, 5, 6):
        manifest = term.save(step)
        if step == 2:
            term.checkpoints.mark_best(manifest, 0.25)
    assert term.steps() == [6, 5, 2]
    objects = bench.store.list_objects(bench.bucket, keys.checkpoints("run"))
    assert len(objects) == 3 * 4  # nothing half is left
    local = sorted(path.name for path in (bench.root / "node" / "checkpoints").glob("step-*"))
    assert local == ["step-00000002", "step-00000005", "step-00000006"]
    assert term.pointer(keys.latest("run")).step == 6
    best = term.pointer(keys.best("run"))
    assert (best.step, best.eval_loss) == (2, 0.25)
    resumed = Term(bench, 2)
    resumed.begin()
    resumed.save(7)
    assert resumed.steps() == [7, 6, 2]


def test_a_lower_step_is_never_written_and_the_same_step_only_once(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    manifest = term.save(4)
    assert term.save(4) is manifest
    with pytest.raises(CheckpointError, match="step 3 is below the newest checkpoint, 4"):
        term.save(3)


def test_a_checkpoint_of_another_configuration_is_refused(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    term.save(2)
    with pytest.raises(CheckpointError, match="another configuration"):
        Term(bench, 2, learning_rate=0.5).begin()


def test_resume_never_does_not_overwrite(bench: Bench) -> None:
    term = Term(bench, 1, resume="never")
    term.begin()
    term.save(2)
    with pytest.raises(ConfigurationError, match="step 2 and resume is never"):
        Term(bench, 2, resume="never").begin()


@pytest.mark.parametrize(("training", "copies"), [({}, 3), ({"eval_every_steps": 5}, 4)])
def test_a_disk_without_room_for_all_that_will_lie_there_is_told_at_the_start(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, training: dict[str, Any], copies: int
) -> None:
    """Two are kept, one is being written, and one may be the best: else it ran full at the third save, hours later."""
    usage, free = namedtuple("usage", "total used free"), copies * 2**30
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage(2**40, 0, free))
    first = Term(bench, 1, **training)
    first.begin(expected_bytes=2**30)
    free -= 1
    told = rf"{copies}\.0 GiB free; {copies} more checkpoints of this model need {copies}\.0 GiB"
    with pytest.raises(CheckpointError, match=told):
        Term(bench, 1, node="another-node", **training).begin(expected_bytes=2**30)
    for step in (2, 4):
        first.save(step)
    free = (copies - 2) * 2**30  # those that lie there have their room
    assert Term(bench, 2, **training).begin(expected_bytes=2**30) == 4


def test_a_full_disk_during_a_save_keeps_the_old_checkpoint(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    term = Term(bench, 1)
    term.begin()
    term.save(2)

    def full(_state: Any, _file: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(CheckpointError, match="No space left on device"):
        term.save(4)
    monkeypatch.undo()
    assert Term(bench, 2).begin() == 2


def test_pruning_that_fails_does_not_fail_the_save(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    from trainer.errors import StoreError

    class Undeletable:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def delete(self, bucket: str, key: str) -> None:
            if "step-" in key:
                raise StoreError("access denied")
            bench.store.delete(bucket, key)

    term = Term(bench, 1, store=Undeletable())
    term.begin()
    for step in (1, 2, 3):
        term.save(step)
    assert "were not removed" in caplog.text
    assert term.pointer(keys.latest("run")).step == 3


@pytest.mark.parametrize("harm", ["partial", "empty", "vanished", "manifest vanished"])
def test_a_newest_checkpoint_that_is_not_whole_falls_back_and_says_so(bench: Bench, harm: str) -> None:
    term = Term(bench, 1)
    term.begin()
    for step in (2, 4):
        manifest = term.save(step)
    key = keys.checkpoint(
        "run", 4, "manifest.json" if harm.startswith("manifest") else manifest.files[0].name
    )
    body = (bench.store.get(bench.bucket, key) or pytest.fail()).body
    if harm.endswith("vanished"):
        bench.store.delete(bench.bucket, key)
    else:
        bench.store.put(bench.bucket, key, body[: len(body) // 2 if harm == "partial" else 0])
    resumed = Term(bench, 2, node="another-node")
    assert resumed.begin() == 2
    ((step, why),) = resumed.fallbacks
    assert step == 4 and ("manifest is gone" in why) == harm.startswith("manifest")
    resumed.save(4)
    assert Term(bench, 3).begin() == 4


def test_a_partial_copy_on_the_disk_is_fetched_again(bench: Bench) -> None:
    term = Term(bench, 1)
    term.begin()
    file = term.save(2).files[-1]
    path = bench.root / "node" / "checkpoints" / "step-00000002" / file.name
    path.write_bytes(path.read_bytes()[:100])
    resumed = Term(bench, 2)
    assert resumed.begin() == 2 and resumed.fallbacks == []


@pytest.mark.parametrize("call", ["put", "get", "delete"])
def test_a_bucket_that_takes_no_checkpoint_is_told_before_the_first_step(bench: Bench, call: str) -> None:
    from trainer.errors import StoreError

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            real = getattr(bench.store, name)

            def refuse(bucket: str, key: str, *rest: Any, **options: Any) -> Any:
                if "probe" in key:
                    raise StoreError(f"{call} {key}: access denied")
                return real(bucket, key, *rest, **options)

            return refuse if name == call else real

    with pytest.raises(StoreError, match="access denied"):
        Term(bench, 1, store=Refusing()).begin()


def test_a_bucket_that_gives_back_other_bytes_is_told_before_the_first_step(bench: Bench) -> None:
    class Forgetting:
        def __getattr__(self, name: str) -> Any:
            return getattr(bench.store, name)

        def put(self, *_: Any, **__: Any) -> None: ...

    with pytest.raises(CheckpointError, match="does not give back what was written"):
        Term(bench, 1, store=Forgetting()).begin()


def test_the_probe_leaves_nothing(bench: Bench) -> None:
    Term(bench, 1).begin()
    assert bench.store.list_objects(bench.bucket, "runs/") == []
    assert list((bench.root / "node" / "checkpoints").iterdir()) == []
