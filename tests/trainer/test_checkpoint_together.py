"""A divided state is saved by all ranks, each its part: on nodes of their own, with faults of one, read by others."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint import metadata as dcp_index
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from trainer.exit_codes import Exit
from trainer.file_store import FileStore
from trainer.train import checkpoint
from trainer.train.job import Job
from trainer.train.lineage import newest_complete
from trainer.train.saved_state import PLAIN, SavedState, UnreadableError, write_state
from trainer.train.state import Part
from trainer.train.world import Writers

from tests.trainer.test_train_features import stop_after_2
from tests.trainer.train_kit import Outcome, train_ranks


def on_a_node_of_its_own(job: Job) -> None:
    """Each rank has a disk for itself and its node's files in its care."""
    job.checkpoints._local = job.checkpoints._local / f"node-{job.world.rank}"
    job.writers = Writers(job.world.rank, True, job.writers.group)


def stopping_there(job: Job) -> None:
    on_a_node_of_its_own(job)
    stop_after_2(job)
    asked, take = iter([True]), job.saver.room.take

    job.stop.take_save = lambda: next(asked, False)  # type: ignore[method-assign]

    def measured(part: Part, *rest: Any) -> Part:
        copy = take(part, *rest)
        held, whole = (sum(one.numel() for one in named.values()) for named in (copy.values, part.tensors))
        job.events.write("note", message=f"copied {held / whole:.1f}")
        return copy

    job.saver.room.take = measured  # type: ignore[method-assign]


def test_nodes_save_their_own_files_and_fetch_those_of_others(tmp_path: Path) -> None:
    whole = train_ranks(tmp_path / "whole", 1)[0]
    root = tmp_path / "parts"
    asked: dict[str, Any] = {"same_run": True, "parallel": "fsdp"}
    for outcome in train_ranks(root, 2, prepare=stopping_there, **asked):
        assert [note["message"] for note in outcome.of_kind("note")] == ["copied 0.5"]  # after the first step
    manifest = newest_complete(FileStore(root / "store"), "bucket", "run")
    assert manifest is not None and manifest.step == 2
    lie = [{path.name for path in (root / f"checkpoints/node-{rank}").rglob("g0001/*")} for rank in (0, 1)]
    assert lie == [{"__0_0.distcp", ".metadata", PLAIN}, {"__1_0.distcp"}]
    assert {Path(file.name).name for file in manifest.files} == lie[0] | lie[1]
    rest = train_ranks(root, 2, generation=2, prepare=on_a_node_of_its_own, **asked)
    for rank, outcome in enumerate(rest):
        assert outcome.fault is None and outcome.of_kind("started")[0]["step"] == 2
        assert outcome.losses == pytest.approx(whole.losses[2:], abs=1e-5)
        assert any((root / f"checkpoints/node-{rank}").rglob("g0002/*"))


def stopping_elsewhere(job: Job) -> None:
    on_a_node_of_its_own(job)
    stop_after_2(job)


def test_a_node_that_only_reads_keeps_what_it_resumes_from_and_no_older_one(tmp_path: Path) -> None:
    """Nothing else makes room there: of replicas rank 0's node alone saves, and a run may be interrupted often."""
    train_ranks(tmp_path, 2, prepare=stopping_elsewhere)
    older = tmp_path / "checkpoints/node-1/step-00000001"
    older.mkdir(parents=True)
    rest = train_ranks(tmp_path, 2, generation=2, prepare=on_a_node_of_its_own)
    assert [outcome.fault for outcome in rest] == [None] * 2
    assert [path.name for path in older.parent.glob("step-*")] == ["step-00000002"]


def vanish_while_saving(job: Job) -> None:
    on_a_node_of_its_own(job)
    if job.world.rank == 1:
        checkpoint.sha256_of = lambda _: os._exit(0)  # type: ignore[assignment]


def test_a_rank_that_is_lost_during_a_save_ends_the_others_as_a_lost_peer(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):  # rank 1 has come to nothing
        train_ranks(tmp_path, 2, prepare=vanish_while_saving, parallel="fsdp")
    outcome: Outcome = torch.load(tmp_path / "outcome-0.pt", weights_only=False)
    assert (
        outcome.exit_code == Exit.PEER_LOST
        and newest_complete(FileStore(tmp_path / "store"), "bucket", "run") is None
    )


def full_disk_of_rank_1(job: Job) -> None:
    on_a_node_of_its_own(job)
    if job.world.rank == 1:
        (job.checkpoints._local.parent).mkdir(exist_ok=True)
        job.checkpoints.prepare = lambda _: None  # type: ignore[method-assign]
        job.checkpoints._local.write_text("where a folder should be")


def test_what_one_rank_meets_ends_the_save_of_all(tmp_path: Path) -> None:
    outcomes = train_ranks(tmp_path, 2, prepare=full_disk_of_rank_1, parallel="fsdp")
    assert [outcome.exit_code for outcome in outcomes] == [Exit.CHECKPOINT] * 2
    assert all("cannot be written" in str(outcome.fault) for outcome in outcomes)
    assert newest_complete(FileStore(tmp_path / "store"), "bucket", "run") is None


class Trap:
    def __reduce__(self) -> Any:
        return (os.mkdir, ("trapped",))


@pytest.mark.parametrize("harm", [".metadata", PLAIN, "__0_0.distcp"])
def test_a_state_runs_nothing_that_is_in_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: str
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"model.a": torch.rand(3, 2)}
    write_state(tmp_path / "s", Part(values, values, {"tied": {"b": "a"}}), Writers())
    assert torch.equal(SavedState(tmp_path / "s").weights()["b"], values["model.a"])
    (tmp_path / "s" / harm).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(UnreadableError, match="cannot be read"):
        SavedState(tmp_path / "s").weights()
    assert not (tmp_path / "trapped").exists()


def test_an_index_is_read_that_a_python_wrote_which_names_enums_by_getattr(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python 3.11.2 is one: a node's, while the machine that fetches has another."""
    values = {"model.a": torch.rand(3, 2)}
    with monkeypatch.context() as patch:
        by_name = lambda member, _: (getattr, (type(member), member.name))  # noqa: E731
        patch.setattr(dcp_index._MEM_FORMAT_ENCODING, "__reduce_ex__", by_name)
        write_state(tmp_path / "s", Part(values, values, {"tied": {}}), Writers())
    assert b"getattr" in (tmp_path / "s" / ".metadata").read_bytes()
    assert torch.equal(SavedState(tmp_path / "s").weights()["a"], values["model.a"])
    (tmp_path / "s" / ".metadata").write_bytes(pickle.dumps(Reach()))
    with pytest.raises(UnreadableError, match=r"an attribute of .* does not belong"):
        SavedState(tmp_path / "s")


class Reach:
    def __reduce__(self) -> tuple[object, ...]:
        return getattr, (torch.Size, "mro")


def test_pytorchs_own_converter_reads_a_state(tmp_path: Path) -> None:
    values = {"model.a": torch.rand(3, 2)}
    write_state(tmp_path / "s", Part(values, values, {"step": 1}), Writers())
    dcp_to_torch_save(tmp_path / "s", tmp_path / "weights.pt")
    found = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert found.keys() == values.keys() and torch.equal(found["model.a"], values["model.a"])


def test_a_state_of_another_model_is_told_by_name(tmp_path: Path) -> None:
    values = {"model.a": torch.rand(3, 2)}
    write_state(tmp_path / "s", Part(values, values, {}), Writers())
    with pytest.raises(ValueError, match=r"it has no model.b$"):
        SavedState(tmp_path / "s").fill({"model.b": torch.zeros(3, 2)})
    with pytest.raises(ValueError, match=r"model.a is \[3, 2\] there, \[2, 3\] here"):
        SavedState(tmp_path / "s").fill({"model.a": torch.zeros(2, 3)})
