"""A short run as its nodes and the bucket tell it: 12 steps, three nodes, one of them lost and replaced.

    generation 1, 3 ranks   steps 1 to 6, checkpoints at 2 and 4; i-3 is killed at 107
    generation 2, 2 ranks   from 4, steps 5 to 7; stopped and saved at 7, since the world grows
    generation 3, 3 ranks   from 7, steps 8 to 12

A step takes a second. A checkpoint is complete 0.2 s after its step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from trainer.contracts.manifests import CheckpointFile, CheckpointManifest, LatestPointer
from trainer.contracts.run import RunConfig, RunResult, TrainingConfig
from trainer.contracts.worker import WorkerEvent
from trainer.data.order import GlobalOrder

from localcloud.faults.evidence import AgentLine, GenerationEvidence, NodeLife, RunEvidence

SAMPLES, BATCH, SEED, STEPS = 40, 8, 5, 12  # so that the run is more than two epochs
KILLED_AT = 107.0
NODES = ("i-1", "i-2", "i-3", "i-4")


def sample_sum(step: int) -> int:
    return int(GlobalOrder(SAMPLES, BATCH, SEED).step_batch(step - 1).sum())


def generation(
    n: int,
    begins: float,
    resumed: int | None,
    steps: Iterable[int],
    ranks: int,
    saves: Mapping[int, str] | None = None,
    stop: str | None = None,
) -> GenerationEvidence:
    """`resumed` None: it never began to train. `saves`: step -> reason."""
    saves = saves or {}
    by_rank = {}
    for rank in range(ranks):
        events: list[WorkerEvent] = []
        if resumed is not None:
            events.append(
                WorkerEvent(kind="started", time=begins, step=resumed, world_size=ranks, total_steps=STEPS)
            )
        last = resumed or 0
        for place, step in enumerate(steps, start=1):
            at, last = begins + place, step
            events.append(WorkerEvent(kind="step", time=at, step=step, loss=0.5, sample_sum=sample_sum(step)))
            if rank == 0 and step in saves:
                events.append(WorkerEvent(kind="checkpoint", time=at + 0.2, step=step, reason=saves[step]))
        if stop is not None:
            at = events[-1].time + 0.5
            events.append(WorkerEvent(kind="stopped", time=at, step=last, reason=stop, saved=True))
        by_rank[NODES[rank], rank] = tuple(events)
    return GenerationEvidence(n, by_rank, NODES[:ranks])


def manifest(step: int, n: int) -> CheckpointManifest:
    return CheckpointManifest(
        run="r",
        step=step,
        generation=n,
        samples_consumed=step * BATCH,
        epoch=step / 5,
        world_size=3,
        config_sha256="0" * 64,
        trainer_version="1",
        files=[CheckpointFile(name=f"g{n:04d}/__0_0.distcp", size_bytes=1, sha256="0" * 64)],
        created_at="1970-01-01T00:01:40Z",
    )


def config() -> RunConfig:
    training = TrainingConfig(dataset="d@v1", steps=STEPS, global_batch_size=BATCH, seed=SEED)
    return RunConfig(name="r", groups=["g"], nodes=3, training=training, created_at="1970-01-01T00:01:00Z")


def result(**fields: object) -> RunResult:
    base = RunResult(
        run="r",
        status="finished",
        exit_code=0,
        message="done",
        step=STEPS,
        epochs=STEPS / 5,
        first_loss=1.0,
        last_loss=0.5,
        finished_at="1970-01-01T00:03:20Z",  # 200
    )
    return base.model_copy(update=fields)


def reference() -> RunResult:
    return result(last_loss=0.5)


def evidence(*generations: GenerationEvidence) -> RunEvidence:
    return RunEvidence(
        run="r",
        config=config(),
        result=result(),
        generations=generations,
        manifests=(manifest(7, len(generations)), manifest(STEPS, len(generations))),
        latest=LatestPointer(step=STEPS, generation=len(generations), manifest_sha256="0" * 64),
        checkpoint_verified=True,
        lives=(
            NodeLife("i-1", 50.0),
            NodeLife("i-2", 50.0),
            NodeLife("i-3", 50.0, 110.0),
            NodeLife("i-4", 120.0),
        ),
        train_samples=SAMPLES,
    )


def undisturbed() -> RunEvidence:
    return evidence(
        generation(1, 100.0, 0, range(1, STEPS + 1), ranks=3, saves={7: "periodic", STEPS: "final"})
    )


def interrupted() -> RunEvidence:
    run = evidence(
        generation(1, 100.0, 0, range(1, 7), ranks=3, saves={2: "periodic", 4: "periodic"}),
        generation(2, 130.0, 4, range(5, 8), ranks=2, saves={7: "regroup"}, stop="regroup"),
        generation(3, 180.0, 7, range(8, STEPS + 1), ranks=3, saves={STEPS: "final"}),
    )
    lines = (
        line(106.0, "i-1", "info", "waiting", why="training"),
        line(109.5, "i-1", "error", "stopping workers", why="i-3 gives no sign of life", save=False),
        line(109.8, "i-1", "info", "workers ended", code=32),
        line(190.0, "i-1", "info", "workers ended", code=0),
    )
    return replace(run, manifests=(manifest(7, 2), manifest(STEPS, 3)), agent_lines=lines)


def failed(code: int, message: str) -> RunEvidence:
    """One generation that ended after six steps, and the run with it."""
    return replace(
        evidence(generation(1, 100.0, 0, range(1, 7), ranks=3, saves={2: "periodic", 4: "periodic"})),
        result=result(status="failed", exit_code=code, message=message, step=6),
        manifests=(manifest(2, 1), manifest(4, 1)),
        latest=LatestPointer(step=4, generation=1, manifest_sha256="0" * 64),
    )


def line(at: float, instance_id: str, level: str, event: str, **fields: object) -> AgentLine:
    return AgentLine(at, instance_id, level, event, {"event": event, "level": level, **fields})


def change(
    n: int, body: Callable[[WorkerEvent], WorkerEvent | None], rank: int | None = None
) -> Callable[[RunEvidence], RunEvidence]:
    """Every event of generation n (of one rank) becomes another one, or none."""

    def apply(run: RunEvidence) -> RunEvidence:
        changed = []
        for found in run.generations:
            by_rank = {
                key: tuple(e for event in events if (e := body(event)) is not None)
                if found.n == n and rank in (None, key[1])
                else events
                for key, events in found.by_rank.items()
            }
            changed.append(replace(found, by_rank=by_rank))
        return replace(run, generations=tuple(changed))

    return apply
