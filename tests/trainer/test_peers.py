"""The peer port: who answers, who is alive behind a partition, and who is merely gone."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Mapping

import pytest
from trainer.agent.peers import Address, Peers, connect_all
from trainer.agent.supervisor import interface_of
from trainer.contracts.run import Member, MemberReport
from trainer.errors import ConfigurationError
from trainer.obs.exporter import NodeState

from tests.local.cloud_kit import wait_until
from tests.trainer.test_generation import VERSIONS

OpenPeers = Callable[[str], Peers]


@pytest.fixture
def open_peers() -> Iterator[OpenPeers]:
    opened: list[Peers] = []

    def one(address: str) -> Peers:
        opened.append(Peers(address, 0, NodeState(), interval_seconds=0.02, timeout_seconds=0.3, probe=probe))
        return opened[-1]

    silent.clear()
    yield one
    for peers in opened:
        peers.close()


silent: set[str] = set()  # instance ids behind a firewall that drops


def probe(targets: Mapping[str, Address], timeout_seconds: float) -> dict[str, float]:
    return connect_all({id_: at for id_, at in targets.items() if id_ not in silent}, timeout_seconds)


def seen(id_: str, peers: Peers, beat: int) -> dict[str, MemberReport]:
    member = Member(
        instance_id=id_, group="gpu", address=peers.address, local_world_size=1, peer_port=peers.port
    )
    return {id_: MemberReport(member=member, versions=VERSIONS, state="ready", beat=beat)}


def test_a_peer_that_answers_is_reached_and_measured(open_peers: OpenPeers) -> None:
    mine, other = open_peers("127.0.0.1"), open_peers("127.0.0.2")
    assert mine.look(seen("i-b", other, 1)) == []
    wait_until(lambda: mine.reached() == {"i-b"}, "the first answer", 5)
    rtt = mine.state.get("trainer_peer_rtt_seconds", peer="i-b")
    assert rtt is not None and 0 < rtt < 0.3
    assert mine.state.get("trainer_peer_reachable", peer="i-b") == 1
    assert mine.state.get("trainer_peers_partitioned") == 0
    mine.look({})  # the run is over
    assert mine.reached() == frozenset() and mine.state.get("trainer_peers_partitioned") is None
    wait_until(
        lambda: mine.state.get("trainer_peer_reachable", peer="i-b") is None, "its series to vanish", 5
    )


def test_alive_without_an_answer_is_a_partition_told_once_and_over_when_it_answers_again(
    open_peers: OpenPeers, capsys: pytest.CaptureFixture[str]
) -> None:
    mine, other = open_peers("127.0.0.1"), open_peers("127.0.0.2")
    beat = 0

    def look() -> list[str]:
        nonlocal beat
        beat += 1  # its lease is fresh
        return mine.look(seen("i-b", other, beat))

    look()
    wait_until(lambda: mine.reached() == {"i-b"}, "the first answer", 5)
    silent.add("i-b")
    wait_until(lambda: look() == ["i-b"], "the partition to be seen", 5)
    assert mine.state.get("trainer_peers_partitioned") == 1
    assert mine.state.get("trainer_peer_reachable", peer="i-b") == 0
    assert mine.state.get("trainer_peer_rtt_seconds", peer="i-b") is None
    assert mine.reached() == frozenset()
    look()
    told = f"peer i-b is alive (its lease is fresh) but does not answer at 127.0.0.2:{other.port}: network partition"
    assert capsys.readouterr().out.count(told) == 1
    silent.clear()
    wait_until(lambda: look() == [], "the partition to end", 5)
    assert "answers again" in capsys.readouterr().out


def test_a_dead_node_answers_nothing_and_is_no_partition(open_peers: OpenPeers) -> None:
    """Its beat stands still; its lease will tell. A last beat may be read after the first probe that failed."""
    mine, other = open_peers("127.0.0.1"), open_peers("127.0.0.2")
    last = seen("i-b", other, 5)
    mine.look(last)
    wait_until(lambda: mine.reached() == {"i-b"}, "the first answer", 5)
    other.close()
    wait_until(lambda: mine.state.get("trainer_peer_reachable", peer="i-b") == 0, "the first miss", 5)
    one_more = seen("i-b", other, 6)
    for _ in range(3):
        mine.look(one_more)
        before = mine._peers["i-b"].missed
        wait_until(lambda before=before: mine._peers["i-b"].missed > before + 1, "more misses", 5)
    assert mine.look(one_more) == []


def test_all_peers_are_asked_at_once_and_a_silent_one_costs_one_time_out(open_peers: OpenPeers) -> None:
    other = open_peers("127.0.0.2")
    with socket.create_server(("127.0.0.3", 0), backlog=0) as full:
        waiting = [
            socket.create_connection(full.getsockname()) for _ in range(1)
        ]  # its queue is full: no answer
        targets = {
            "i-silent": full.getsockname(),
            "i-refuses": ("127.0.0.4", other.port),
            "i-answers": (other.address, other.port),
        }
        assert set(connect_all(targets, 0.3)) == {"i-answers"}
        for one in waiting:
            one.close()


def test_a_peer_port_in_use_is_a_plain_fault(open_peers: OpenPeers) -> None:
    taken = open_peers("127.0.0.2")
    with pytest.raises(ConfigurationError, match="another agent"):
        Peers("127.0.0.2", taken.port, NodeState(), 1.0, 1.0)


def test_workers_talk_over_the_interface_that_has_the_node_s_address():
    assert interface_of("127.0.0.9") == "lo"
    assert interface_of("192.0.2.77") is None, "an address that no interface here has"
