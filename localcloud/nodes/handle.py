"""What the service asks of a node, whatever it is made of."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Protocol

from .cloud import InstanceFacts
from .driver import Node, Phase
from .metadata import Show


class NodeHandle(Protocol):
    """`NodeProcess` and `NodeMachine`. None of the calls waits for what it begins; `watch` sees how it ends."""

    driver: str
    address: str  # loopback, by which the host reaches its metrics
    phase: Phase
    record: dict[str, Any]
    settled: bool
    announced: bool
    agent_reboots: int  # by exit code REBOOT
    reboots_obeyed: int  # of those that EC2 was asked for
    interrupt_at: float | None

    def view(self) -> Node: ...

    def boot(self, facts: InstanceFacts, user_data: bytes) -> None:
        """Lay out its folder, start its metadata service, run its user data. Raises MetadataFailed, OSError."""
        ...

    def reboot(self) -> None: ...

    def stop(self, now: float) -> None:
        """TerminateInstances: an orderly shut-down, power off after the grace."""
        ...

    def power_off(self, now: float) -> None:
        """StopInstances: the same, and what it wrote is kept."""
        ...

    def power_on(self) -> None:
        """StartInstances: boots again with what it wrote; user data does not run again."""
        ...

    def crash(self) -> None:
        """The power fails."""
        ...

    def clear(self) -> None:
        """The instance is gone: end whatever is left."""
        ...

    def watch(self, now: float) -> None: ...

    def show(self, show: Show, terminates_at: datetime | None = None, code: str | None = None) -> None: ...

    def write(self) -> None: ...
