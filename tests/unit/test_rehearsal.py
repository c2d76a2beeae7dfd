"""A rehearsal's report is worked out from the event lines of the interrupted generation and the next one."""

import pytest

from localcloud.rehearsal import RehearsalError, analyse, faults

BEFORE = [
    {"kind": "started", "time": 100.0, "step": 0},
    {"kind": "step", "time": 101.0, "step": 1},
    {"kind": "checkpoint", "time": 101.5, "step": 1},  # a periodic one, before the notice
    {"kind": "step", "time": 102.0, "step": 2},
    {"kind": "step", "time": 103.5, "step": 3},
    {"kind": "checkpoint", "time": 104.0, "step": 3},
    {"kind": "stopped", "time": 104.5, "step": 3, "saved": True},
]
AFTER = [
    {"kind": "started", "time": 130.0, "step": 3},
    {"kind": "step", "time": 131.5, "step": 4},
]


def report(before=BEFORE, after=AFTER, finished=True):
    return analyse("rehearsal", "i-0123456789abcdef1", 103.0, before, after, other_nodes=1, finished=finished)


def test_phases_are_counted_from_the_notice_and_from_the_stop():
    found = report()
    assert found.noticeToSaveSeconds == 1.0
    assert found.noticeToStopSeconds == 1.5
    assert found.stopToNextStepSeconds == 27.0
    assert found.idleSecondsOfOthers == 27.0
    assert (found.stoppedAtStep, found.resumedAtStep, found.lostSteps) == (3, 3, 0)
    assert faults(found) == []


def test_a_checkpoint_from_before_the_notice_is_not_taken_for_the_save():
    assert report().noticeToSaveSeconds > 0


def test_steps_after_the_checkpoint_that_was_resumed_from_are_lost():
    found = report(
        after=[{"kind": "started", "time": 130.0, "step": 1}, {"kind": "step", "time": 131.0, "step": 2}]
    )
    assert found.lostSteps == 2
    assert faults(found) == ["2 steps were lost, expected 0 on a notice"]


def test_idle_time_is_summed_over_the_nodes_that_stayed():
    found = analyse("r", "i-1", 103.0, BEFORE, AFTER, other_nodes=3, finished=True)
    assert found.idleSecondsOfOthers == 81.0


@pytest.mark.parametrize("missing", ["checkpoint", "stopped"])
def test_a_generation_that_did_not_save_and_stop_is_no_rehearsal(missing):
    before = [event for event in BEFORE if event["kind"] != missing or event["time"] < 103]
    with pytest.raises(RehearsalError, match=missing):
        report(before=before)


def test_a_run_that_never_finished_is_a_fault():
    assert faults(report(finished=False)) == ["run rehearsal did not finish after the interruption"]
