"""The pure decisions: who leads, when a generation begins and ends, what a lease and a failure mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trainer.agent.generation import (
    Conclude,
    Leave,
    Peer,
    Publish,
    Start,
    Stop,
    View,
    Wait,
    decide,
)
from trainer.agent.pace import Pace
from trainer.contracts.run import (
    ElasticSettings,
    Generation,
    Member,
    MemberReport,
    RunConfig,
    TrainingConfig,
    Versions,
)
from trainer.exit_codes import Exit

VERSIONS = Versions(trainer="1", torch="2")
PACE = Pace()
SEEN = ("fresh", "stale", "life_cycle", "apart_seconds", "cut_seconds")


def member(id_: str) -> Member:
    return Member(instance_id=id_, group="gpu", address="10.0.0.1", local_world_size=1)


def report(id_: str, state: Any = "ready", generation: int = 0, **more: Any) -> MemberReport:
    return MemberReport(
        **{"member": member(id_), "versions": VERSIONS, **more, "state": state, "generation": generation}
    )


def peer(id_: str, state: Any = "ready", generation: int = 0, **more: Any) -> Peer:
    of_peer = {key: more.pop(key) for key in SEEN if key in more}
    seen: dict[str, Any] = {"fresh": True, "stale": False, "life_cycle": "InService", **of_peer}
    return Peer(report(id_, state, generation, **more), **seen)


def world(n: int, *ids: str) -> Generation:
    return Generation(
        n=n,
        members=[member(id_) for id_ in ids],
        master_address="10.0.0.1",
        master_port=29500,
        versions=VERSIONS,
        published_at="now",
    )


def view(
    me: str, peers: Mapping[str, Peer] | list[Peer], generation: Generation | None = None, **more: Any
) -> View:
    by_id = peers if isinstance(peers, Mapping) else {p.report.member.instance_id: p for p in peers}
    nodes = more.pop("nodes", 2)
    run = RunConfig(
        name="r",
        groups=["gpu"],
        nodes=nodes,
        training=TrainingConfig(dataset="d@1", steps=1),
        elastic=ElasticSettings(**more.pop("elastic", {})),
        created_at="now",
    )
    return View(
        me=me, run=run, stop_requested=more.pop("stop", False), generation=generation, peers=by_id, **more
    )


# --- the first generation


def test_the_smallest_ready_member_publishes_when_all_are_ready_and_is_rank_0() -> None:
    peers = [peer("i-b"), peer("i-a")]
    assert decide(view("i-a", peers)) == Publish(1, ("i-a", "i-b"))
    assert decide(view("i-b", peers)) == Wait("i-a leads")


def test_a_surplus_member_is_left_out_and_waits() -> None:
    peers = [peer("i-a"), peer("i-b"), peer("i-c")]
    assert decide(view("i-a", peers)) == Publish(1, ("i-a", "i-b"))
    waits = decide(view("i-c", peers, world(1, "i-a", "i-b")))
    assert waits == Wait("generation 1 is without this node")


@pytest.mark.parametrize(
    "other",
    [
        peer("i-a", fresh=False),  # seen for the first time
        peer("i-a", fresh=False, stale=True),
        peer("i-a", life_cycle="Pending:Wait"),
        peer("i-a", life_cycle="Terminating:Wait"),
        peer("i-a", life_cycle=None),
        peer("i-a", "leaving"),
        peer("i-a", "failed", exit_code=int(Exit.DEVICE)),
    ],
)
def test_only_fresh_in_service_ready_nodes_count(other: Peer) -> None:
    assert decide(view("i-b", [other, peer("i-b")])) == Wait("1 of 2 members are ready")


def test_members_with_other_versions_are_named_and_waited_for() -> None:
    older = Versions(trainer="0", torch="2")
    action = decide(view("i-a", [peer("i-a"), peer("i-b", versions=older)]))
    assert isinstance(action, Wait) and "differ in their versions" in action.why and "i-b" in action.why


def test_the_wait_for_members_has_a_limit_that_ends_the_run() -> None:
    action = decide(view("i-a", [peer("i-a")], waited_seconds=1801))
    assert isinstance(action, Conclude) and action.status == "failed" and "1 of 2 members" in action.message


# --- starting and running


def test_each_member_starts_its_own_rank_of_a_new_generation() -> None:
    peers, generation = [peer("i-a"), peer("i-b")], world(1, "i-a", "i-b")
    assert decide(view("i-b", peers, generation)) == Start(generation, 1)
    assert decide(view("i-a", [peer("i-a", "running", 1), peer("i-b")], generation)) == Wait("training")


def test_a_generation_that_a_member_has_ended_already_is_not_begun_any_more() -> None:
    peers = [peer("i-a", "ready", 1, exit_code=int(Exit.PEER_LOST)), peer("i-b")]
    assert decide(view("i-a", peers, world(1, "i-a", "i-b"))) == Publish(2, ("i-a", "i-b"))


def test_nobody_publishes_while_a_member_still_runs_or_is_about_to_start() -> None:
    generation = world(1, "i-a", "i-b")
    half = [peer("i-a", "ready", 1, exit_code=32), peer("i-b", "running", 1)]
    assert decide(view("i-a", half, generation)) == Wait("i-b still runs generation 1")
    spare = [peer("i-0"), peer("i-a"), peer("i-b")]
    assert decide(view("i-0", spare, generation)) == Wait("generation 1 is without this node")


@pytest.mark.parametrize(
    ("other", "why"),
    [
        (peer("i-b", "running", 1, stale=True, fresh=False), "i-b gives no sign of life"),
        (peer("i-b", "running", 1, life_cycle=None), "i-b is no longer in its group"),
        (
            peer("i-b", "ready", 0, apart_seconds=PACE.apart_seconds + 1),
            "i-b is ready and not in generation 1 since 11 s",
        ),
        (
            peer("i-b", "leaving", 1, exit_code=75, apart_seconds=PACE.stopping_seconds + 1),
            "i-b is leaving and not in generation 1 since 101 s",
        ),
    ],
)
def test_workers_are_ended_without_a_save_when_a_member_is_lost(other: Peer, why: str) -> None:
    running = [peer("i-a", "running", 1), other]
    assert decide(view("i-a", running, world(1, "i-a", "i-b"))) == Stop(save=False, why=why)


@pytest.mark.parametrize(
    "other",
    [
        peer("i-b", "ready", 0, apart_seconds=PACE.apart_seconds - 1),  # not begun yet
        peer("i-b", "running", 1, life_cycle="Terminating:Wait"),  # it will ask all to stop and save
        peer("i-b", "leaving", 1, exit_code=75, apart_seconds=50.0),  # mine are saving
        peer("i-b", "finished", 1, exit_code=0, apart_seconds=50.0),
        peer("i-b", "running", 1, fresh=False),  # first sight of it
    ],
)
def test_workers_go_on_while_a_member_starts_or_stops_as_planned(other: Peer) -> None:
    assert decide(view("i-a", [peer("i-a", "running", 1), other], world(1, "i-a", "i-b"))) == Wait("training")


def test_a_node_that_was_left_out_of_a_newer_generation_ends_its_workers() -> None:
    running = [peer("i-a", "running", 1), peer("i-b")]
    action = decide(view("i-a", running, world(2, "i-b", "i-c")))
    assert isinstance(action, Stop) and not action.save


def test_a_stop_request_before_all_have_begun_leaves_nobody_waiting_for_who_will_not_come() -> None:
    """A node that sees the request starts no generation; the others' ranks would wait for its ranks in vain."""
    generation, begun = world(2, "i-a", "i-b"), [peer("i-a", "running", 2), peer("i-b", "ready", 1)]
    action = decide(view("i-a", begun, generation, stop=True))
    assert isinstance(action, Stop) and not action.save and "before i-b began" in action.why
    waiting = [peer("i-a", "running", 2), peer("i-b", "ready", 1)]
    assert isinstance(decide(view("i-b", waiting, generation, stop=True)), Wait)
    # One that has begun is waited for, also when it is faster and has ended already.
    for other in (peer("i-b", "running", 2), peer("i-b", "ready", 2, exit_code=75)):
        assert decide(view("i-a", [peer("i-a", "running", 2), other], generation, stop=True)) == Stop(
            True, "the run was stopped by its owner"
        )


def test_a_stop_request_stops_with_a_save_and_concludes_when_nobody_runs_any_more() -> None:
    generation, running = world(1, "i-a", "i-b"), [peer("i-a", "running", 1), peer("i-b", "running", 1)]
    assert decide(view("i-a", running, generation, stop=True)) == Stop(
        True, "the run was stopped by its owner"
    )
    half = [peer("i-a", "ready", 1, exit_code=75), peer("i-b", "running", 1)]
    assert isinstance(decide(view("i-a", half, generation, stop=True)), Wait)
    done = [peer("i-a", "ready", 1, exit_code=75), peer("i-b", "ready", 1, exit_code=75)]
    action = decide(view("i-a", done, generation, stop=True))
    assert isinstance(action, Conclude) and (action.status, action.exit_code) == ("stopped", 75)


# --- the next generation, and the end


def test_after_a_kill_the_same_members_go_on_and_after_a_notice_the_replacement_joins() -> None:
    generation = world(1, "i-a", "i-b")
    killed = [peer("i-a", "ready", 1, exit_code=32), peer("i-b", "ready", 1, exit_code=32)]
    assert decide(view("i-a", killed, generation)) == Publish(2, ("i-a", "i-b"))
    noticed = [peer("i-a", "leaving", 1, exit_code=75), peer("i-b", "ready", 1, exit_code=75), peer("i-c")]
    assert decide(view("i-b", noticed, generation)) == Publish(2, ("i-b", "i-c"))
    assert decide(view("i-b", noticed[:2], generation)) == Wait("1 of 2 members are ready")


def test_a_back_off_holds_the_publication() -> None:
    action = decide(view("i-a", [peer("i-a"), peer("i-b")], hold_seconds=4))
    assert action == Wait("backing off for 4 s")


def test_the_run_is_finished_when_rank_0_is_and_nobody_runs() -> None:
    generation = world(1, "i-a", "i-b")
    last = [peer("i-a", "finished", 1, exit_code=0), peer("i-b", "running", 1)]
    assert isinstance(decide(view("i-a", last, generation)), Wait)
    done = [peer("i-a", "finished", 1, exit_code=0, life_cycle=None), peer("i-b", "finished", 1, exit_code=0)]
    action = decide(view("i-b", done, generation))  # rank 0's node may be gone by now
    assert isinstance(action, Conclude) and action.status == "finished"
    assert decide(view("i-b", done, generation, over=True)) == Leave()


def test_a_node_that_finished_without_rank_0_takes_part_again() -> None:
    peers = [peer("i-a", "ready", 1, exit_code=32), peer("i-b", "finished", 1, exit_code=0)]
    assert decide(view("i-a", peers, world(1, "i-a", "i-b"))) == Publish(2, ("i-a", "i-b"))


@pytest.mark.parametrize(
    "code", [Exit.DATASET, Exit.NON_FINITE, Exit.CHECKPOINT, Exit.CONFIGURATION, Exit.BUG]
)
def test_a_fault_of_run_or_data_fails_the_run_with_its_reason(code: Exit) -> None:
    peers = [peer("i-a"), peer("i-b", "failed", 1, exit_code=int(code), message="shard train-1.npz")]
    action = decide(view("i-a", peers))
    assert (
        isinstance(action, Conclude)
        and action.exit_code == code
        and "i-b: shard train-1.npz" in action.message
    )


@pytest.mark.parametrize("code", [Exit.DEVICE, Exit.PERFORMANCE, Exit.DRIVER])
def test_a_fault_of_a_node_waits_for_its_replacement(code: Exit) -> None:
    peers = [peer("i-a", "ready", 1, exit_code=32), peer("i-b", "failed", 1, exit_code=int(code))]
    assert decide(view("i-a", peers, world(1, "i-a", "i-b"))) == Wait("1 of 2 members are ready")


# --- properties over all that can be seen

PEERS = st.builds(
    lambda state, generation, code, seen, life_cycle: (state, generation, code, seen, life_cycle),
    st.sampled_from(["ready", "running", "leaving", "finished", "failed"]),
    st.integers(0, 3),
    st.sampled_from([None, 0, 10, 20, 32, 75]),
    st.sampled_from([(True, False), (False, True), (False, False)]),
    st.sampled_from(["InService", "Pending:Wait", "Terminating:Wait", None]),
)


@given(
    st.lists(PEERS, min_size=1, max_size=4),
    st.integers(0, 3),
    st.integers(1, 3),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_no_view_leads_to_a_generation_that_must_not_be(
    seen: list[Any], n: int, nodes: int, stop: bool, over: bool
) -> None:
    """Of all nodes looking at the same facts at most one publishes; only after n is over, with ready members alone."""
    ids = [f"i-{index}" for index in range(len(seen))]
    peers = {
        id_: peer(
            id_, state, min(generation, n), exit_code=code, fresh=sight[0], stale=sight[1], life_cycle=life
        )
        for id_, (state, generation, code, sight, life) in zip(ids, seen, strict=True)
    }
    generation = world(n, *ids[:nodes]) if n else None
    publishers = []
    for me in ids:
        mine = replace(peers[me], fresh=True, stale=False)
        action = decide(view(me, {**peers, me: mine}, generation, nodes=nodes, stop=stop, over=over))
        if isinstance(action, Publish):
            publishers.append(me)
            assert not stop and not over
            assert action.n == n + 1 and len(action.members) == nodes and action.members[0] == me
            assert list(action.members) == sorted(action.members)
            for id_ in action.members:
                assert peers[id_].life_cycle == "InService" and peers[id_].report.state in (
                    "ready",
                    "finished",
                )
            assert not any(p.report.state == "running" and not p.gone for p in peers.values())
        if isinstance(action, Start):
            assert generation is not None and mine.report.generation < generation.n
            assert generation.members[action.node_rank].instance_id == me
    fresh = [me for me in publishers if peers[me].fresh]
    assert len(fresh) <= 1
