"""What this node tells the others of itself in a run: its report, written anew with each beat."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from ..contracts.cost import RunUsage
from ..contracts.run import MemberReport
from ..errors import StoreError
from ..obs.logs import get_logger
from .cost import UsageClock, seconds_before
from .node import Node


@dataclass
class OwnReport:
    node: Node
    run: str
    now: MemberReport
    usage: UsageClock
    earlier: RunUsage | None  # what the run had before it was resumed
    written_at: float | None = None  # of the monotonic clock: when the last one reached S3

    @classmethod
    def begin(cls, node: Node, run: str, port: int) -> OwnReport:
        """Go on from the last one, if there is one (the agent was restarted, the node rebooted)."""
        old = node.board.reports(run).get(node.instance_id)
        state: Literal["ready", "finished"] = "finished" if old and old.state == "finished" else "ready"
        report = MemberReport(
            member=node.member(port),
            versions=node.versions,
            state=state,
            generation=old.generation if old else 0,
            exit_code=old.exit_code if old and old.state != "failed" else None,
            beat=old.beat + 1 if old else 0,
            trained_seconds=old.trained_seconds if old else 0.0,
        )
        earlier = node.board.usage(run)
        usage = node.usage_clock(seconds_before(node.instance_id, old, earlier))
        return cls(node, run, report, usage, earlier)

    def set(self, **changes: object) -> None:
        self.now = self.now.model_copy(update=changes)

    def put(self) -> None:
        """Raises StoreError."""
        self.set(beat=self.now.beat + 1, usage=self.usage.read())
        self.node.board.put_report(self.run, self.now)
        self.written_at = time.monotonic()

    def put_quietly(self) -> None:
        try:
            self.put()
        except StoreError as error:
            get_logger().warning("report not written", error=str(error))
