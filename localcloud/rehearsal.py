"""What a rehearsed interruption cost: event lines of two generations in, a report out. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

Event = Mapping[str, Any]  # one line of events-rank0.jsonl, see trainer.contracts.worker.WorkerEvent


class RehearsalError(Exception):
    """The events do not tell the story of an interruption; the text says what is missing."""


@dataclass(frozen=True)
class Rehearsal:
    """Field names are those of `.local/rehearsal.json`; times are seconds."""

    run: str
    noticedNode: str
    otherNodes: int
    lostSteps: int  # steps that were trained and had to be trained again; 0 on a notice
    stoppedAtStep: int
    resumedAtStep: int
    noticeToSaveSeconds: float  # notice visible to the node -> checkpoint complete in the bucket
    noticeToStopSeconds: float  # notice visible -> every rank has stopped
    stopToNextStepSeconds: float  # every rank has stopped -> first step of the next generation is done
    idleSecondsOfOthers: float  # the last figure, summed over the nodes that stayed: billed, not used
    finished: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2) + "\n"


def _first(events: Sequence[Event], kind: str, since: float = 0.0) -> Event:
    for event in events:
        if event["kind"] == kind and event["time"] >= since:
            return event
    raise RehearsalError(f"no event of kind {kind} after {since:.1f}")


def analyse(
    run: str,
    noticed_node: str,
    notice_time: float,
    before: Sequence[Event],
    after: Sequence[Event],
    other_nodes: int,
    finished: bool,
) -> Rehearsal:
    """Compare the interrupted generation (`before`) with the next one (`after`), both as rank 0 recorded them.

    `notice_time` is seconds since the epoch, on this machine's clock, as are the events' times. Raises
    RehearsalError where the generation did not stop on the notice or the next one never made a step.
    """
    saved = _first(before, "checkpoint", notice_time)
    stopped = _first(before, "stopped", notice_time)
    started = _first(after, "started", notice_time)
    next_step = _first(after, "step", notice_time)
    last_step = max(event["step"] for event in before if event["kind"] == "step")
    idle = next_step["time"] - stopped["time"]
    return Rehearsal(
        run=run,
        noticedNode=noticed_node,
        otherNodes=other_nodes,
        lostSteps=last_step - started["step"],
        stoppedAtStep=stopped["step"],
        resumedAtStep=started["step"],
        noticeToSaveSeconds=round(saved["time"] - notice_time, 3),
        noticeToStopSeconds=round(stopped["time"] - notice_time, 3),
        stopToNextStepSeconds=round(idle, 3),
        idleSecondsOfOthers=round(idle * other_nodes, 3),
        finished=finished,
    )


def faults(report: Rehearsal) -> list[str]:
    """Why the rehearsal failed; empty means that nothing was lost and the run went on to its end."""
    found: list[str] = []
    if report.lostSteps != 0:
        found.append(f"{report.lostSteps} steps were lost, expected 0 on a notice")
    if not report.finished:
        found.append(f"run {report.run} did not finish after the interruption")
    return found
