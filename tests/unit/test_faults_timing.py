"""A fault's times: noticed, recovered, what was done again and what stood idle meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localcloud.faults.evidence import NodeStop, RunEvidence
from localcloud.faults.timing import timing
from tests.unit.faults_story import KILLED_AT, failed, generation, interrupted, line, undisturbed


def test_a_killed_node_is_noticed_by_a_warning_and_overcome_by_the_first_step_of_the_next_generation():
    found = timing(interrupted(), KILLED_AT)
    assert found.detection_seconds == pytest.approx(2.5)
    assert found.detected_by == "error of i-1: stopping workers"
    assert found.recovery_seconds == pytest.approx(131 - KILLED_AT)
    assert found.after_healing_seconds is None


def test_idle_are_the_nodes_that_were_billed_between_the_last_step_and_the_next_one():
    # i-1 and i-2 all 24 s from the kill to the step at 131, i-3 until it was gone at 110, i-4 from its boot at 120.
    assert timing(interrupted(), KILLED_AT).billed_idle_seconds == pytest.approx(24 + 24 + 3 + 11)


def test_steps_after_the_fault_are_not_idle_time():
    # A fault at 103 is felt only after the step at 106.
    assert timing(interrupted(), 103.0).billed_idle_seconds == pytest.approx(25 + 25 + 4 + 11)


def test_lost_steps_are_those_of_all_regroupings_after_the_fault_and_of_none_before():
    run = interrupted()
    assert timing(run, KILLED_AT).lost_steps == 2
    assert timing(run, 135.0).lost_steps == 0
    again = generation(4, 195.0, 9, (10, 11, 12), ranks=3)
    assert timing(replace(run, generations=(*run.generations, again)), KILLED_AT).lost_steps == 2 + 3


def test_a_generation_that_makes_no_step_is_no_recovery():
    run = interrupted()
    stillborn = generation(2, 120.0, 4, (), ranks=2)
    third = replace(run.generations[1], n=3)
    found = timing(replace(run, generations=(run.generations[0], stillborn, third)), KILLED_AT)
    assert found.recovery_seconds == pytest.approx(131 - KILLED_AT)


def test_recovery_is_also_counted_from_where_the_fault_was_lifted_if_that_was_before():
    assert timing(interrupted(), KILLED_AT, healed_at=127.0).after_healing_seconds == pytest.approx(4)
    assert timing(interrupted(), KILLED_AT, healed_at=150.0).after_healing_seconds is None


def test_a_run_that_was_not_interrupted_has_no_times_and_was_not_idle():
    run = replace(undisturbed(), agent_lines=(line(115.0, "i-1", "info", "workers ended", code=0),))
    found = timing(run, 105.0)
    assert (found.detection_seconds, found.detected_by, found.recovery_seconds) == (None, None, None)
    assert (found.lost_steps, found.billed_idle_seconds) == (0, 0.0)


def test_a_run_that_did_not_go_on_is_idle_until_its_end():
    found = timing(failed(20, "publish it"), KILLED_AT)
    assert found.recovery_seconds is None
    assert found.billed_idle_seconds == pytest.approx(93 + 93 + 3 + 80)  # the result is of 200


def test_what_is_not_known_is_not_zero():
    nothing = RunEvidence(run="r", config=None, result=None)
    found = timing(nothing, KILLED_AT)
    assert (found.lost_steps, found.billed_idle_seconds) == (None, None)
    assert timing(replace(interrupted(), lives=()), KILLED_AT).billed_idle_seconds is None


def bootstrap_fails(run: RunEvidence) -> RunEvidence:
    return replace(run, node_stops=(NodeStop(108.0, "i-4", 55, "55 BOOT_RELEASE_HASH: another"),))


def workers_end(run: RunEvidence) -> RunEvidence:
    return replace(run, agent_lines=(line(108.5, "i-2", "info", "workers ended", code=32),))


@pytest.mark.parametrize(
    ("run", "since", "seconds", "sign"),
    [
        (bootstrap_fails(interrupted()), KILLED_AT, 1.0, "end of i-4: 55 BOOT_RELEASE_HASH: another"),
        (workers_end(interrupted()), KILLED_AT, 1.5, "info of i-2: workers ended"),
        (
            replace(interrupted(), agent_lines=()),
            132.0,
            1.5,
            "worker rank 1 on i-2: stopped, regroup",
        ),
    ],
    ids=["bootstrap", "end of a generation", "stop of a worker"],
)
def test_the_first_sign_on_any_node_counts(run: RunEvidence, since: float, seconds: float, sign: str):
    found = timing(run, since)
    assert found.detection_seconds == pytest.approx(seconds)
    assert found.detected_by == sign


def test_a_sign_from_before_the_fault_is_none_of_it():
    assert timing(interrupted(), 109.6).detected_by == "info of i-1: workers ended"


def test_a_step_of_a_woken_rank_in_the_middle_does_not_end_the_idle_time():
    """A hang that the watchdog looks at: the rank is woken for that, makes one step more at 119, and is ended."""
    run = interrupted()
    first = run.generations[0]
    ranks = dict(first.by_rank)
    rank0 = next(key for key in ranks if key[1] == 0)
    ranks[rank0] = (*ranks[rank0], ranks[rank0][-1].model_copy(update={"time": 119.0, "step": 7}))
    woken = replace(run, generations=(replace(first, by_rank=ranks), *run.generations[1:]))
    assert timing(woken, KILLED_AT).billed_idle_seconds == pytest.approx(24 + 24 + 3 + 11)
