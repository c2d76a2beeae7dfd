"""Whether the members of a run reach each other: each agent answers connections and probes all others.

Leases go through S3, training through the network between nodes. A member whose lease is fresh but that does not
answer is alive behind a partition, and a collective with it would hang until its own time-out.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ..contracts.run import MemberReport
from ..errors import ConfigurationError
from ..obs.exporter import NodeState
from ..obs.logs import get_logger

IN_A_ROW = 3  # probes without an answer until a peer counts as lost, and with one until it counts as back
# Beats seen since the first miss: a dead node answers nothing either, but it does not beat. One may be late.
BEATS_ALIVE = 2

Address = tuple[str, int]
# Round trips in seconds by instance id; those that did not answer in time are left out.
Probe = Callable[[Mapping[str, Address], float], dict[str, float]]


def connect_all(targets: Mapping[str, Address], timeout_seconds: float) -> dict[str, float]:
    """Connect to all at once; the round trip is that of the TCP handshake."""
    answered: dict[str, float] = {}
    with contextlib.ExitStack() as opened, selectors.DefaultSelector() as selector:
        for id_, address in targets.items():
            probe = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            probe.setblocking(False)
            began = time.monotonic()
            if probe.connect_ex(address) in (0, errno.EINPROGRESS):
                selector.register(probe, selectors.EVENT_WRITE, (id_, began))
        deadline = time.monotonic() + timeout_seconds
        while selector.get_map() and (left := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                id_, began = key.data
                selector.unregister(key.fileobj)
                assert isinstance(key.fileobj, socket.socket)
                if key.fileobj.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0:
                    answered[id_] = time.monotonic() - began
    return answered


@dataclass
class _Peer:
    address: Address
    beat: int
    beats_since_miss: int = 0
    missed: int = 0  # in a row
    answered: int = 0  # in a row
    lost: bool = False


@dataclass
class Peers:
    """Answers on ``port`` and probes once an interval until closed; ``look`` is called once a poll.

    Raises ConfigurationError when the port cannot be bound.
    """

    address: str
    port: int
    state: NodeState
    interval_seconds: float
    timeout_seconds: float
    probe: Probe = connect_all
    _peers: dict[str, _Peer] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _closing: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        try:
            self._listener = socket.create_server((self.address, self.port), backlog=128)
        except OSError as error:
            raise ConfigurationError(
                f"peer port {self.address}:{self.port} cannot be bound ({error.strerror}): "
                "another agent runs on this node, or the address is not the node's own"
            ) from error
        self.port = self._listener.getsockname()[1]
        self._threads = [
            threading.Thread(target=target, daemon=True, name=name)
            for target, name in ((self._answer, "peer port"), (self._probe, "peer probes"))
        ]
        for thread in self._threads:
            thread.start()

    def look(self, reports: Mapping[str, MemberReport]) -> list[str]:
        """Probe these members (the others with a fresh lease) from now on; returns those that are cut off from here."""
        with self._lock:
            for id_ in self._peers.keys() - reports.keys():
                del self._peers[id_]
            for id_, report in reports.items():
                self._see(id_, report)
            changed = []
            for id_, peer in self._peers.items():
                lost = peer.missed >= IN_A_ROW and peer.beats_since_miss >= BEATS_ALIVE
                if peer.lost != (now := lost or (peer.lost and peer.answered < IN_A_ROW)):
                    peer.lost = now
                    changed.append((id_, peer))
            cut_off = sorted(id_ for id_, peer in self._peers.items() if peer.lost)
        self.state.set("trainer_peers_partitioned", len(cut_off) if reports else None)
        for id_, peer in changed:
            host, port = peer.address
            if peer.lost:
                get_logger().error(
                    f"peer {id_} is alive (its lease is fresh) but does not answer at {host}:{port}: network partition"
                )
            else:
                get_logger().info(f"peer {id_} answers again at {host}:{port}")
        return cut_off

    def reached(self) -> frozenset[str]:
        """Those that answered the last probe."""
        with self._lock:
            return frozenset(id_ for id_, peer in self._peers.items() if peer.answered and not peer.lost)

    def close(self) -> None:
        self._closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listener.close()
        for thread in self._threads:
            thread.join(timeout=self.timeout_seconds + 1)

    def _see(self, id_: str, report: MemberReport) -> None:
        port = report.member.peer_port
        if port is None:
            return
        address = (report.member.address, port)
        peer = self._peers.get(id_)
        if peer is None or peer.address != address:
            self._peers[id_] = _Peer(address, report.beat)
        elif report.beat != peer.beat:
            peer.beat = report.beat
            if peer.missed:
                peer.beats_since_miss += 1

    def _answer(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._closing.wait(0.1):  # closed; or out of file descriptors for a moment
                    return
                continue
            connection.close()

    def _probe(self) -> None:
        while not self._closing.wait(self.interval_seconds):
            with self._lock:
                targets = {id_: peer.address for id_, peer in self._peers.items()}
            answered = self.probe(targets, self.timeout_seconds)
            with self._lock:
                for id_ in targets.keys() & self._peers.keys():
                    self._count(self._peers[id_], id_ in answered)
            # Only of those that were asked: a member that is gone leaves no series behind.
            self.state.replace("trainer_peer_rtt_seconds", {(id_,): s for id_, s in answered.items()})
            self.state.replace("trainer_peer_reachable", {(id_,): float(id_ in answered) for id_ in targets})

    def _count(self, peer: _Peer, answered: bool) -> None:
        if answered:
            peer.answered, peer.missed, peer.beats_since_miss = peer.answered + 1, 0, 0
        else:
            peer.answered, peer.missed = 0, peer.missed + 1
