"""What two agents would have written into a stack's bucket, for the tests of `trainer run`."""

from __future__ import annotations

import hashlib
from typing import Any

from trainer.agent.board import Board, utc_now
from trainer.contracts import keys
from trainer.contracts.manifests import CheckpointFile, CheckpointManifest, LatestPointer
from trainer.contracts.run import Generation, Member, MemberReport, RunResult, Versions
from trainer.contracts.worker import WorkerEvent

from tests.trainer.kit import Bench

VERSIONS = Versions(trainer="1", torch="2")


def board(stack: Bench) -> Board:
    return Board(stack.store, stack.bucket)


def conclude(stack: Bench, name: str, status: Any = "finished", step: int = 20) -> None:
    result = RunResult(
        run=name, status=status, exit_code=0, message="as told", step=step, epochs=1, finished_at=utc_now()
    )
    assert board(stack).put_result(result)


def checkpoint(stack: Bench, name: str, step: int, body: bytes) -> LatestPointer:
    digest = hashlib.sha256(body).hexdigest()
    manifest = CheckpointManifest(
        run=name,
        step=step,
        generation=1,
        samples_consumed=step * 16,
        epoch=0.5,
        world_size=2,
        config_sha256="0" * 64,
        trainer_version="1",
        files=[CheckpointFile(name="state.pt", size_bytes=len(body), sha256=digest)],
        created_at="now",
    )
    text = manifest.to_json().encode()
    stack.store.put(stack.bucket, keys.checkpoint(name, step, "state.pt"), body)
    stack.store.put(stack.bucket, keys.checkpoint(name, step, "manifest.json"), text)
    return LatestPointer(
        step=step, generation=1, manifest_sha256=hashlib.sha256(text).hexdigest(), eval_loss=0.25
    )


def train(stack: Bench, name: str, done: int) -> None:
    """What two agents would have written so far."""
    members = [
        Member(instance_id=f"i-{n}", group="gpu", address="10.0.0.1", local_world_size=1) for n in (1, 2)
    ]
    generation = Generation(
        n=1, members=members, master_address="10.0.0.1", master_port=1, versions=VERSIONS, published_at="now"
    )
    assert board(stack).publish(name, generation, None)
    for member in members:
        board(stack).put_report(
            name, MemberReport(member=member, versions=VERSIONS, state="running", generation=1, beat=3)
        )
    lines = [WorkerEvent(kind="started", time=0, step=0, total_steps=20).to_line()]
    for step in range(1, done + 1):
        lines.append(
            WorkerEvent(kind="step", time=step, step=step, loss=2 - step / 20, seconds=0.5).to_line()
        )
    board(stack).put_text(keys.run_log(name, 1, "i-1", keys.events_segment(1)), "".join(lines))
    board(stack).put_text(keys.run_log(name, 1, "i-2", "worker.log"), "hello from the worker\n")
