"""Which world comes next when members are missing, come back, or do not reach each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer.agent.generation import Conclude, Peer, Publish, Stop, View, Wait, decide
from trainer.agent.membership import Observer
from trainer.agent.world import choose, cut_pairs
from trainer.contracts.run import Generation, MemberReport, Versions
from trainer.exit_codes import Exit

from tests.trainer.test_generation import PACE, peer, report, view, world

SMALL = {"min_world_nodes": 1, "shrink_after_seconds": 20}
LATER: dict[str, Any] = {"waited_seconds": 20.0}
SETTLED: dict[str, Any] = {"ran_seconds": PACE.settle_seconds, "progressed": True}
OTHER = Versions(trainer="0", torch="2")


# --- shrink


def test_a_world_that_may_be_smaller_waits_for_the_missing_members_first() -> None:
    peers = [peer("i-a"), peer("i-b")]
    waiting = view("i-a", peers, nodes=3, elastic=SMALL, waited_seconds=19.9)
    assert decide(waiting) == Wait("2 of 3 members are ready")
    assert decide(replace(waiting, waited_seconds=20.0)) == Publish(1, ("i-a", "i-b"))


def test_below_the_smallest_world_it_waits_and_then_fails_the_run() -> None:
    few = view("i-a", [peer("i-a")], nodes=3, elastic={**SMALL, "min_world_nodes": 2}, waited_seconds=1000.0)
    assert decide(few) == Wait("1 of 3 members are ready")
    failed = decide(replace(few, waited_seconds=1801.0))
    assert isinstance(failed, Conclude) and failed.exit_code == Exit.PEER_LOST


def test_by_default_a_world_never_shrinks() -> None:
    assert isinstance(decide(view("i-a", [peer("i-a")], waited_seconds=1000.0)), Wait)


def test_a_world_that_lost_a_member_shrinks_and_one_that_lost_none_goes_on_at_once() -> None:
    lost = [peer("i-a", "ready", 1, exit_code=32), peer("i-b", "running", 1, stale=True, fresh=False)]
    noticed = [peer("i-a", "ready", 1, exit_code=75), peer("i-b", "leaving", 1, exit_code=75)]
    for peers in (lost, noticed):
        before = view("i-a", peers, world(1, "i-a", "i-b"), elastic=SMALL, waited_seconds=1.0)
        assert decide(before) == Wait("1 of 2 members are ready")
        assert decide(replace(before, **LATER)) == Publish(2, ("i-a",))
    killed = [peer("i-a", "ready", 2, exit_code=32)]  # its own worker, in the small world: nobody to wait for
    assert decide(view("i-a", killed, world(2, "i-a"), elastic=SMALL)) == Publish(3, ("i-a",))


def test_a_member_that_did_not_start_is_not_shrunk_away_while_others_still_run() -> None:
    peers = [peer("i-a", "ready", 1, exit_code=32), peer("i-b", "running", 1)]
    action = decide(view("i-a", peers, world(1, "i-a", "i-b"), elastic=SMALL, waited_seconds=100.0))
    assert action == Wait("i-b still runs generation 1")


# --- grow


def small_world(*others: Peer, **more: Any) -> View:
    """i-b trains alone in a run of three nodes."""
    arguments: dict[str, Any] = {
        "nodes": 3,
        "elastic": SMALL,
        "reached": frozenset(other.report.member.instance_id for other in others),
        **SETTLED,
        **more,
    }
    return view("i-b", [peer("i-b", "running", 4), *others], world(4, "i-b"), **arguments)


def test_a_small_world_stops_with_a_save_when_another_member_is_ready() -> None:
    assert decide(small_world(peer("i-a"))) == Stop(
        save=True, why="i-a joins: the world grows from 1 to 2 of 3 nodes", reason="regroup"
    )


@pytest.mark.parametrize(
    ("other", "more"),
    [
        (peer("i-a"), {"progressed": False}),
        (peer("i-a"), {"ran_seconds": PACE.settle_seconds - 0.1}),
        (peer("i-a"), {"reached": frozenset()}),  # not probed yet, or it does not answer
        (peer("i-a", unreachable=["i-b"]), {}),
        (peer("i-a", fresh=False), {}),
        (peer("i-a", life_cycle="Warmed:Running"), {}),
        (peer("i-a", "leaving"), {}),
        (peer("i-a", versions=OTHER), {}),  # it would not be chosen: a stop for nothing
        (peer("i-a"), {"nodes": 1}),  # the world is whole
    ],
)
def test_it_goes_on_where_the_next_world_would_be_no_larger_or_it_is_too_early(
    other: Peer, more: Any
) -> None:
    assert decide(small_world(other, **more)) == Wait("training")


def test_only_the_first_member_asks_for_it_and_only_while_all_still_run() -> None:
    generation, reached = world(4, "i-b", "i-c"), frozenset({"i-a", "i-b", "i-c"})
    peers = [peer("i-a"), peer("i-b", "running", 4), peer("i-c", "running", 4)]
    first = view("i-b", peers, generation, nodes=3, elastic=SMALL, reached=reached, **SETTLED)
    assert isinstance(decide(first), Stop)
    assert decide(replace(first, me="i-c")) == Wait("training")
    stopping = {**first.peers, "i-c": peer("i-c", "ready", 4, exit_code=75)}
    assert decide(replace(first, peers=stopping)) == Wait("training")


def test_after_the_stop_the_larger_world_begins_at_once_even_if_it_is_not_whole_yet() -> None:
    peers = [peer("i-a"), peer("i-b", "ready", 4, exit_code=75)]
    assert decide(view("i-a", peers, world(4, "i-b"), nodes=3, elastic=SMALL)) == Publish(5, ("i-a", "i-b"))


# --- partition


def test_a_member_that_is_alive_but_not_reached_ends_the_workers_before_their_own_time_out() -> None:
    generation = world(1, "i-a", "i-b")

    def seen(cut_seconds: float) -> Any:
        other = peer("i-b", "running", 1, cut_seconds=cut_seconds)
        return decide(view("i-a", [peer("i-a", "running", 1), other], generation))

    assert seen(PACE.partition_seconds) == Wait("training")
    stop = seen(PACE.partition_seconds + 1)
    assert isinstance(stop, Stop) and not stop.save
    assert stop.why == "i-b is alive but not reached from here since 11 s: network partition"


def test_either_direction_counts_from_the_moment_it_was_first_seen() -> None:
    observer = Observer()

    def look(now: float, mine: MemberReport, other: MemberReport) -> float:
        return observer.look("i-a", {"i-a": mine, "i-b": other}, {}, now)["i-b"].cut_seconds

    whole = report("i-a"), report("i-b")
    assert look(0.0, *whole) == 0.0
    assert look(1.0, report("i-a", unreachable=["i-b"]), report("i-b")) == 0.0
    assert look(4.0, report("i-a"), report("i-b", unreachable=["i-a"])) == 3.0
    assert look(5.0, *whole) == 0.0
    assert look(6.0, report("i-a"), report("i-b", unreachable=["i-a"])) == 0.0


def test_two_halves_that_both_reach_s3_make_one_world() -> None:
    """i-a and i-b do not reach i-c and i-d; both halves see all reports."""
    peers = [
        peer("i-a", unreachable=["i-c", "i-d"]),
        peer("i-b", unreachable=["i-c"]),
        peer("i-c", unreachable=["i-a"]),
        peer("i-d", unreachable=["i-b"]),
    ]
    elastic = {**SMALL, "min_world_nodes": 2}
    actions = {me: decide(view(me, peers, nodes=4, elastic=elastic, **LATER)) for me in ("i-a", "i-b", "i-c")}
    assert actions["i-a"] == Publish(1, ("i-a", "i-b"))
    assert actions["i-b"] == Wait("i-a leads")
    assert actions["i-c"] == Wait("cut off from i-a, i-b: waits")
    waits = decide(view("i-a", peers, nodes=4, elastic=elastic))
    assert waits == Wait("2 of 4 members are ready, cut off are i-c, i-d")


def test_a_node_that_was_cut_off_says_so_while_the_others_train() -> None:
    peers = [peer("i-a", "running", 2), peer("i-b", "ready", 1, exit_code=32, unreachable=["i-a"])]
    assert decide(view("i-b", peers, world(2, "i-a"))) == Wait("cut off from i-a: waits")


def test_a_warmed_node_joins_no_run() -> None:
    warm = peer("i-a", life_cycle="Warmed:Pending:Wait")
    assert isinstance(decide(view("i-a", [warm], nodes=1)), Wait)
    assert decide(view("i-b", [warm, peer("i-b")], nodes=1)) == Publish(1, ("i-b",))


# --- which members


def pairs(*two: str) -> set[frozenset[str]]:
    return {frozenset(text) for text in two}


@pytest.mark.parametrize(
    ("ready", "apart", "most", "chosen"),
    [
        ("abcd", pairs(), 3, "abc"),
        ("abcd", pairs("ab"), 4, "acd"),  # one of the two, the first by id
        ("abcd", pairs("ab", "ac", "ad"), 4, "bcd"),  # the largest set, not the lowest id
        ("abcd", pairs("ac", "ad", "bc", "bd"), 4, "ab"),
        ("ab", pairs("ac"), 2, "ab"),  # who is not ready cuts nobody off
        ("", pairs(), 2, ""),
    ],
)
def test_the_largest_set_that_reaches_each_other_is_chosen(
    ready: str, apart: Any, most: int, chosen: str
) -> None:
    assert choose(ready, apart, most) == tuple(chosen)


IDS = [f"i-{n:02d}" for n in range(6)]
EDGES = st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(IDS)), max_size=12)


@given(st.sets(st.sampled_from(IDS)), EDGES, st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_the_chosen_reach_each_other_and_nobody_could_be_added(
    ready: set[str], edges: Any, most: int
) -> None:
    apart = {frozenset(edge) for edge in edges if len(set(edge)) == 2}
    chosen = choose(ready, apart, most)
    assert set(chosen) <= ready and list(chosen) == sorted(chosen) and len(chosen) <= most
    assert not any(pair <= set(chosen) for pair in apart)
    if len(chosen) < most:
        assert all(any({id_} < pair <= {*chosen, id_} for pair in apart) for id_ in ready - set(chosen))


def test_with_many_members_in_conflict_nobody_who_reaches_all_others_is_left_out() -> None:
    ids = [f"i-{n:03d}" for n in range(120)]
    apart = {frozenset((one, other)) for one in ids[:3] for other in ids[3:]}
    assert choose(ids, apart, 120) == tuple(ids[3:])


FACTS = st.builds(
    dict,
    state=st.sampled_from(["ready", "running", "leaving", "finished", "failed"]),
    generation=st.integers(0, 2),
    fresh=st.booleans(),
    life_cycle=st.sampled_from(["InService", "Warmed:Running", None]),
    unreachable=st.lists(st.sampled_from(IDS[:4]), max_size=3),
    old=st.booleans(),
)


@given(
    st.lists(FACTS, min_size=1, max_size=4),
    st.integers(0, 2),
    st.integers(1, 4),
    st.integers(1, 4),
    st.sampled_from([0.0, 50.0]),
)
@settings(max_examples=400, deadline=None)
def test_all_nodes_with_one_view_agree_and_numbers_only_grow(
    facts: list[Any], n: int, nodes: int, least: int, waited: float
) -> None:
    peers = {}
    for id_, fact in zip(IDS, facts, strict=False):
        given_ = {key: fact[key] for key in ("fresh", "life_cycle", "unreachable")}
        versions = {"versions": OTHER} if fact["old"] else {}
        peers[id_] = peer(
            id_, fact["state"], min(fact["generation"], n), stale=not fact["fresh"], **given_, **versions
        )
    generation: Generation | None = world(n, *IDS[: min(nodes, len(facts))]) if n else None
    elastic = {"min_world_nodes": min(least, nodes), "shrink_after_seconds": 20}
    published: dict[str, Publish] = {}
    for me in peers:
        if not peers[me].fresh:
            continue  # it sees itself otherwise than the others do
        action = decide(view(me, peers, generation, nodes=nodes, elastic=elastic, waited_seconds=waited))
        if isinstance(action, Publish):
            published[me] = action
            assert action.n == n + 1
            assert min(least, nodes) <= len(action.members) <= nodes and action.members[0] == me
            chosen = {id_: peers[id_].report for id_ in action.members}
            assert not cut_pairs(chosen) and len({r.versions.to_json() for r in chosen.values()}) == 1
        if isinstance(action, Stop) and action.reason == "regroup":
            raise AssertionError("nobody was reached")
    assert len(published) <= 1
