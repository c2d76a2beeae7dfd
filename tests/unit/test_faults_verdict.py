"""A run that bore a fault passes; each single thing that may not happen is named, with what was expected and found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from trainer.contracts.manifests import LatestPointer
from trainer.contracts.worker import WorkerEvent

from localcloud.faults.evidence import NodeStop, RunEvidence, lost_steps
from localcloud.faults.verdict import Finished, StoppedWith, Unharmed, judge
from tests.unit.faults_story import (
    KILLED_AT,
    change,
    failed,
    generation,
    interrupted,
    manifest,
    reference,
    sample_sum,
    undisturbed,
)

Change = Callable[[RunEvidence], RunEvidence]


def test_an_undisturbed_run_passes_and_says_so():
    verdict = judge(undisturbed(), Unharmed(), None)
    assert verdict.faults == ()
    assert verdict.passed
    assert verdict.outcome == "finished, not interrupted, 3 ranks"


def test_a_run_that_lost_a_node_and_went_on_passes():
    verdict = judge(interrupted(), Finished(max_lost_steps=2), reference())
    assert verdict.faults == ()
    assert verdict.outcome == "finished with worlds of 3, 2, 3 ranks"


def test_a_planned_stop_loses_no_step_and_a_kill_those_since_the_last_checkpoint():
    assert [lost_steps(interrupted().generations[:n]) for n in (1, 2, 3)] == [0, 2, 2]


def test_steps_that_are_lost_twice_count_twice_and_no_others():
    first, second, _ = interrupted().generations
    cut_short = replace(second, by_rank={key: events[:2] for key, events in second.by_rank.items()})  # step 5
    again = generation(3, 180.0, 4, range(5, 13), ranks=3)
    assert lost_steps([first, cut_short, again]) == 2 + 1


# --- what may not happen, one by one


def without_step(step: int) -> Change:
    return change(3, lambda event: None if event.kind == "step" and event.step == step else event)


def with_sum(step: int, value: int | None) -> Change:
    def body(event: WorkerEvent) -> WorkerEvent:
        right = event.kind == "step" and event.step == step
        return event.model_copy(update={"sample_sum": value}) if right else event

    return change(2, body)


def twice(run: RunEvidence) -> RunEvidence:
    return with_events(run, 3, lambda events: [*events[:2], events[1], *events[2:]])


def with_events(
    run: RunEvidence, n: int, body: Callable[[list[WorkerEvent]], list[WorkerEvent]]
) -> RunEvidence:
    generations = tuple(
        replace(g, by_rank={key: tuple(body(list(events))) for key, events in g.by_rank.items()})
        if g.n == n
        else g
        for g in run.generations
    )
    return replace(run, generations=generations)


def resumed_at(step: int) -> Change:
    """Generation 2 goes on from there, as if its checkpoint were the newest."""

    def body(run: RunEvidence) -> RunEvidence:
        second = generation(2, 130.0, step, range(step + 1, 8), ranks=2, saves={7: "regroup"}, stop="regroup")
        return replace(run, generations=(run.generations[0], second, run.generations[2]))

    return body


def with_manifests(*pairs: tuple[int, int]) -> Change:
    return lambda run: replace(run, manifests=tuple(manifest(step, n) for step, n in pairs))


def with_latest(step: int, n: int) -> Change:
    pointer = LatestPointer(step=step, generation=n, manifest_sha256="0" * 64)
    return lambda run: replace(run, latest=pointer)


def with_result(**fields: object) -> Change:
    return lambda run: replace(run, result=run.result and run.result.model_copy(update=fields))


def rank_stops_at(n: int, rank: int, step: int) -> Change:
    def body(event: WorkerEvent) -> WorkerEvent:
        return event.model_copy(update={"step": step}) if event.kind == "stopped" else event

    return change(n, body, rank)


def late_checkpoint(run: RunEvidence) -> RunEvidence:
    """Generation 1's writer, cut off by a partition, completes one more after generation 2 began."""
    late = WorkerEvent(kind="checkpoint", time=131.5, step=6, reason="periodic")
    return with_events(run, 1, lambda events: [*events, late])


VIOLATIONS: dict[str, tuple[Change, str]] = {
    "a step is missing": (without_step(9), "steps: expected each once, found none of 9"),
    "a step counts twice": (twice, "step 8: expected once, found 2 times (generations 3, 3)"),
    "a step used other samples": (
        with_sum(6, 1),
        f"samples of steps 6: expected the order's own, found others (step 6: sum {sample_sum(6)} expected, 1 found)",
    ),
    "a step does not tell its samples": (
        with_sum(6, None),
        "samples of steps 6: expected the order's own, found others "
        f"(step 6: sum {sample_sum(6)} expected, None found)",
    ),
    "a generation's steps begin without a start": (
        change(2, lambda event: None if event.kind == "started" else event),
        "generation 2: expected a start before its steps, found none",
    ),
    "generations fall along the checkpoints": (
        with_manifests((7, 3), (10, 2), (12, 3)),
        "checkpoints: expected generations that never fall along the steps, found step 7 of generation 3 "
        "before step 10 of 2",
    ),
    "two checkpoints of one step": (
        with_manifests((7, 2), (7, 3), (12, 3)),
        "checkpoint of step 7: expected one manifest, found two (generations 2 and 3)",
    ),
    "latest names another step": (
        with_latest(9, 3),
        "latest: expected a step that is there (7, 12), found 9",
    ),
    "latest names an older checkpoint": (
        with_latest(7, 3),
        "last checkpoint: expected of the last step, 12, found 7",
    ),
    "latest is not there": (
        lambda run: replace(run, latest=None),
        "latest: expected a pointer to a checkpoint, found none",
    ),
    "the checkpoint's bytes are others": (
        lambda run: replace(run, checkpoint_verified=False),
        "latest: expected the bytes that its manifest names, found others (step 12)",
    ),
    "a manifest cannot be read": (
        lambda run: replace(run, broken_manifests=("runs/r/checkpoints/step-00000003/manifest.json",)),
        "runs/r/checkpoints/step-00000003/manifest.json: expected a manifest, found something else",
    ),
    "resumed below a complete checkpoint": (
        resumed_at(2),
        "generation 2: expected to go on from step 4, whose checkpoint was complete, found 2",
    ),
    "an older generation saves on": (
        late_checkpoint,
        "generation 1: expected no checkpoint once generation 2 had begun, found step 6",
    ),
    "ranks stop at different steps": (
        rank_stops_at(2, 1, 8),
        "stop of generation 2: expected all ranks at one step, found rank 0 at 7, rank 1 at 8",
    ),
    "a rank goes on beyond the stop": (
        lambda run: rank_stops_at(2, 1, 6)(rank_stops_at(2, 0, 6)(run)),
        "stop of generation 2: expected at step 6, found step 7",
    ),
    "it did not finish": (
        with_result(status="failed", exit_code=32, message="1 of 3 members are ready"),
        "ending: expected finished with exit code 0, found failed with exit code 32 (PEER_LOST): "
        "1 of 3 members are ready",
    ),
    "it has no result": (
        lambda run: replace(run, result=None),
        "ending: expected finished with exit code 0, found no result",
    ),
    "it ended early": (with_result(step=11), "last step: expected 12, found 11"),
    "the loss is another one": (
        with_result(last_loss=0.53),
        "last loss: expected 0.5000 (undisturbed) within 0.02, found 0.5300",
    ),
    "nothing was learnt": (
        with_result(first_loss=0.6),
        "last loss: expected at most 0.8 of the first, 0.6000, found 0.5000",
    ),
    "there is no loss": (with_result(last_loss=None), "loss: expected a first and a last one, found none"),
    "the dataset is on no node": (
        lambda run: replace(run, train_samples=None),
        "samples: expected the run's order to be known, found no configuration or no dataset on any node",
    ),
}


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_single_violation_fails_and_is_named(name: str):
    violate, line = VIOLATIONS[name]
    verdict = judge(violate(interrupted()), Finished(), reference())
    assert not verdict.passed
    assert line in verdict.faults


ALONE = set(VIOLATIONS) - {
    "latest names another step",  # then the last one is not the last step's either
    "latest is not there",
    "a generation's steps begin without a start",  # nor is it known which steps it did again
    "a rank goes on beyond the stop",
    "it has no result",
    "it ended early",
}


@pytest.mark.parametrize("name", sorted(ALONE))
def test_nothing_else_is_found_beside_it(name: str):
    verdict = judge(VIOLATIONS[name][0](interrupted()), Finished(), reference())
    assert len(verdict.faults) == 1, verdict.faults


def test_lost_steps_are_limited_where_the_fault_says_so():
    assert judge(interrupted(), Finished(max_lost_steps=1), reference()).faults == (
        "lost steps: expected at most 1, found 2",
    )


def test_unharmed_means_one_generation_and_nothing_lost():
    assert judge(interrupted(), Unharmed(), reference()).faults == (
        "lost steps: expected at most 0, found 2",
        "generations: expected one, found 3",
    )


# --- what may happen


def test_a_manifest_that_was_fenced_off_before_latest_moved_is_not_in_the_line():
    fenced = with_manifests((4, 1), (5, 2), (6, 1))(failed(20, "publish it again"))
    assert judge(with_latest(5, 2)(fenced), StoppedWith(20, ("publish",)), None).faults == ()
    moved = judge(with_latest(6, 1)(fenced), StoppedWith(20, ("publish",)), None).faults
    assert [fault.partition(",")[0] for fault in moved] == [
        "checkpoints: expected generations that never fall along the steps"
    ]


def test_a_generation_that_never_began_takes_nothing_away():
    run = interrupted()
    stillborn = generation(4, 175.0, None, (), ranks=3)
    later = replace(run.generations[2], n=5)
    assert (
        judge(
            replace(run, generations=(*run.generations[:2], stillborn, later)), Finished(), reference()
        ).faults
        == ()
    )


def test_a_checkpoint_that_was_begun_and_not_completed_may_be_lost():
    run = change(1, lambda event: None if event.kind == "checkpoint" and event.step == 4 else event)(
        resumed_at(2)(interrupted())
    )
    assert judge(run, Finished(), reference()).faults == ()


# --- a run that is meant to stop


@pytest.mark.parametrize(
    ("code", "message", "fault"),
    [
        (20, "shard 3 has another checksum: publish the dataset again", None),
        (
            21,
            "publish the dataset again",
            "ending: expected failed with exit code 20 (DATASET), found failed with exit code 21 (S3): "
            "publish the dataset again",
        ),
        (
            20,
            "shard 3 has another checksum",
            "message: expected it to say 'publish', found 'shard 3 has another checksum'",
        ),
    ],
    ids=["as meant", "wrong code", "no words"],
)
def test_a_run_stops_with_its_code_and_says_what_to_do(code: int, message: str, fault: str | None):
    verdict = judge(failed(code, message), StoppedWith(20, ("Shard 3", "publish")), reference())
    assert verdict.faults == (() if fault is None else (fault,))
    assert verdict.outcome.endswith(message)


def test_a_run_that_finished_did_not_stop():
    verdict = judge(undisturbed(), StoppedWith(20, ("publish",)), None)
    assert verdict.faults == (
        "ending: expected failed with exit code 20 (DATASET), found finished with exit code 0 (DONE): done",
    )


def test_a_stopped_run_too_must_have_lost_nothing():
    run = change(1, lambda event: None if event.kind == "step" and event.step == 2 else event)(
        failed(20, "publish it")
    )
    assert judge(run, StoppedWith(20, ("publish",)), None).faults == (
        "steps: expected each once, found none of 2",
    )


def test_where_the_run_has_no_result_a_node_must_have_stopped_so():
    stop = NodeStop(
        KILLED_AT, "i-3", 55, "55 BOOT_RELEASE_HASH: release has another SHA-256; publish it again"
    )
    run = replace(undisturbed(), result=None, node_stops=(stop,))
    assert judge(run, StoppedWith(55, ("publish",)), None).faults == ()
    assert judge(run, StoppedWith(51, ("publish",)), None).faults == (
        "ending: expected failed with exit code 51 (BOOT_DOCUMENT_MISSING), found no result, and i-3 stopped with "
        f"exit code 55 (BOOT_RELEASE_HASH): {stop.line}",
    )
