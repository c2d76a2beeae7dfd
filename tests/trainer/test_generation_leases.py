"""Leases on this node's own clock, and what happens after a failed generation."""

from __future__ import annotations

import pytest
from trainer.agent.generation import Peer
from trainer.agent.membership import Attempts, Observer, gravest
from trainer.agent.pace import Pace
from trainer.contracts.run import MemberReport
from trainer.exit_codes import Exit

from tests.trainer.test_generation import report

LEASE_SECONDS = Pace().lease_seconds


def test_a_lease_counts_from_the_beat_that_this_node_saw_change() -> None:
    observer = Observer()

    def look(beat: int, now: float) -> Peer:
        reports = {"i-a": report("i-a"), "i-b": report("i-b", beat=beat)}
        return observer.look("i-a", reports, {"i-a": "InService", "i-b": "InService"}, now)["i-b"]

    first = look(7, 100.0)
    assert (first.fresh, first.stale) == (False, False)  # an old report of a dead node looks just so
    changed = look(8, 101.0)
    assert (changed.fresh, changed.stale) == (True, False)
    assert look(8, 101.0 + LEASE_SECONDS).fresh
    late = look(8, 101.1 + LEASE_SECONDS)
    assert (late.fresh, late.stale) == (False, True)
    assert look(9, 200.0).fresh  # it came back


def test_the_time_apart_counts_only_while_this_node_runs() -> None:
    observer = Observer()

    def look(mine: MemberReport, other: MemberReport, now: float) -> float:
        return observer.look("i-a", {"i-a": mine, "i-b": other}, {}, now)["i-b"].apart_seconds

    assert look(report("i-a"), report("i-b"), 0.0) == 0.0
    assert look(report("i-a", "running", 1), report("i-b"), 5.0) == 0.0
    assert look(report("i-a", "running", 1), report("i-b"), 9.0) == 4.0
    assert look(report("i-a", "running", 1), report("i-b", "running", 1), 10.0) == 0.0
    assert look(report("i-a", "running", 1), report("i-b", "ready", 1), 12.0) == 0.0


def test_transient_faults_are_tried_again_with_back_off_and_forgiven_by_progress() -> None:
    attempts = Attempts()
    holds = [attempts.again_after(Exit.PEER_LOST, False) for _ in range(9)]
    assert holds == [0.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, None]
    attempts = Attempts()
    assert [attempts.again_after(Exit.S3, True) for _ in range(20)] == [0.0] * 20


def test_a_bug_is_tried_again_three_times_whatever_the_progress() -> None:
    attempts = Attempts()
    assert [attempts.again_after(Exit.BUG, True) for _ in range(4)] == [2.0, 4.0, 8.0, None]
    assert Attempts().again_after(Exit.OUT_OF_MEMORY, True) is None
    assert Attempts().again_after(Exit.STOPPED_SAVED, False) == 0.0


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([0, 0], 0),
        ([75, 0], 75),
        ([75, 76], 76),
        ([32, 75], 32),
        ([32, 31, 32], 31),  # the cause before its consequence
        ([70, 20], 20),
        ([10, 32], 10),
        ([], 0),
    ],
)
def test_the_gravest_code_explains_a_generation(codes: list[int], expected: int) -> None:
    assert gravest(codes) == expected
