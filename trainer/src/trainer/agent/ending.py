"""The end of a run: its result, written once by whoever is first, and told by the same node."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..contracts import keys
from ..contracts.cost import NodeUsage
from ..contracts.run import MemberReport, RunConfig, RunResult
from ..contracts.run_event import RunEvent
from ..obs.logs import get_logger
from ..report.progress import progress_of
from ..report.reader import EventReader
from .board import utc_now
from .cost import all_usage, run_cost
from .generation import Conclude
from .node import Node
from .run_events import run_event


@dataclass
class Ending:
    node: Node
    run: RunConfig
    _mine: tuple[RunResult, RunEvent] | None = None  # what this node wrote or tried to, until it is told
    _events: EventReader = field(init=False)

    def __post_init__(self) -> None:
        board = self.node.board
        self._events = EventReader(board.store, board.bucket, self.run.name)

    def write(self, action: Conclude, reports: Mapping[str, MemberReport], usage: NodeUsage) -> None:
        """``usage`` is this node's own. Raises StoreError, also where S3 took the result and its answer got lost."""
        board, name = self.node.board, self.run.name
        progress = progress_of(self._events.look())
        used = all_usage(reports, board.usage(name)) | {self.node.instance_id: usage}
        result = RunResult(
            run=name,
            status=action.status,
            exit_code=action.exit_code,
            message=action.message,
            step=progress.step,
            epochs=progress.epochs,
            first_loss=progress.first_loss,
            last_loss=progress.last_loss,
            eval_loss=progress.eval_loss,
            eval_accuracy=progress.eval_accuracy,
            cost=run_cost(used),
            released=action.released,
            finished_at=utc_now(),
        )
        self._mine = result, run_event(self.node.document, self.run, result, progress)
        if board.put_result(result):
            self.tell(result)

    def tell(self, written: RunResult | None) -> None:
        """The run's end, once, where the result that was written is this node's."""
        if self._mine is None or self._mine[0] != written:
            return
        (result, event), self._mine = self._mine, None
        get_logger().info("run concluded", **result.model_dump(exclude_none=True, exclude={"run"}))
        if self.node.run_events is not None:
            self.node.run_events.publish(event)
        self._report()

    def _report(self) -> None:
        """The page beside the result: it can be made again at any time, so that no fault of it matters to the run."""
        from ..report.page import render
        from ..report.record import from_bucket

        board, name = self.node.board, self.run.name
        try:
            page = render(
                from_bucket(board, name, self._events), datetime.datetime.now(datetime.timezone.utc)
            )
            board.put_text(keys.report(name), page)
        except Exception as error:
            get_logger().warning("report not written", error=f"{type(error).__name__}: {error}")
