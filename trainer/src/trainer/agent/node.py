"""What the agent knows of its own node, put together once at start."""

from __future__ import annotations

import importlib.metadata
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from ..contracts.node_document import NodeDocument
from ..contracts.run import Member, Versions
from ..obs.exporter import NodeState
from ..store import Store
from .board import Board
from .cost import UsageClock, list_prices
from .lifecycle import Lifecycle
from .pace import Pace
from .run_events import RunEvents
from .supervisor import WorkerArgv

POLL_VARIABLE = "TRAINER_POLL_SECONDS"
PORTS_TO_TRY = 20


@dataclass(frozen=True)
class Node:
    document: NodeDocument
    instance_id: str
    address: str  # private IPv4
    state_dir: Path
    versions: Versions
    state: NodeState
    store: Store  # for data: patient, since gigabytes may be under way
    board: Board  # for the run's documents: answers or fails within seconds, see `Board.connect`
    lifecycle: Lifecycle
    worker_argv: WorkerArgv
    poll_seconds: float
    standby_argv: tuple[str, ...] = ()  # of what waits for the next generation; none: each one starts anew
    pace: Pace = field(default_factory=Pace)
    instance_type: str | None = None  # None: the metadata service did not say; the promised one counts
    life_cycle: str = "on-demand"  # or spot, capacity-block
    run_events: RunEvents | None = None  # None: nobody is told when a run is over

    def usage_clock(self, seconds_before: float) -> UsageClock:
        """Begins to count this node's time with a run, at the list prices of now."""
        type_ = self.instance_type or self.document.promise.instance_type
        prices = list_prices(self.board, self.document.group)
        return UsageClock(type_, self.life_cycle, prices, seconds_before)

    def member(self, peer_port: int) -> Member:
        promise = self.document.promise
        world = promise.gpu_count if promise.accelerator == "nvidia" else 1
        return Member(
            instance_id=self.instance_id,
            group=self.document.group,
            address=self.address,
            local_world_size=max(1, world),
            peer_port=peer_port,
        )


def installed_versions(document: NodeDocument) -> Versions:
    """Versions of this node's software, without importing torch (which would take memory and seconds)."""
    nccl = next(
        (
            distribution.version
            for distribution in importlib.metadata.distributions()
            if (distribution.metadata["Name"] or "").lower().startswith("nvidia-nccl")
        ),
        None,
    )
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        torch = "none"
    release = document.release
    return Versions(trainer=f"{release.version}+{release.sha256[:12]}", torch=torch, nccl=nccl)


def poll_seconds(document: NodeDocument) -> float:
    """TRAINER_POLL_SECONDS, else 5 (what AWS advises for notices), or 1 where there is no accelerator."""
    given = os.environ.get(POLL_VARIABLE)
    if given:
        return float(given)
    return 5.0 if document.promise.accelerator == "nvidia" else 1.0


def free_port(first: int) -> int:
    """The first port from ``first`` on that torchrun's store can listen on here, on all of the node's addresses."""
    for port in range(first, first + PORTS_TO_TRY):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
            except OSError:
                continue
            return port
    return first
