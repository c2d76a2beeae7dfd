"""The lives of the local nodes, from the driver's records and the workers' event lines, for the picture."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from .launch import LaunchPhases, launch_phases
from .picture import Lane, Loss, Mark, Segment

Event = Mapping[str, Any]


def state_dir(node: Path) -> Path:
    """The agent's state folder, below the root prefix of a node's own folder."""
    return node / "root" / "var" / "lib" / "trainer"


def losses(generations: Sequence[Sequence[Event]], start: float) -> list[Loss]:
    """Every step with a finite loss, in order; `start` (seconds since the epoch) is the picture's zero."""
    return [
        Loss(event["time"] - start, event["step"], event["loss"], number)
        for number, events in enumerate(generations, start=1)
        for event in events
        if event["kind"] == "step" and event.get("loss") is not None
    ]


def life(
    nodes: Path, run: str, start: float, end: float, selfcheck_seconds: Mapping[str, float]
) -> tuple[list[Lane], list[Mark]]:
    """A lane for each node that lived between `start` and `end` (seconds since the epoch), oldest first; the marks
    are the notices that were given."""
    lanes: list[tuple[float, Lane]] = []
    marks: list[Mark] = []
    for path in sorted(nodes.glob("i-*/node.json")):
        node = json.loads(path.read_text())
        segments, notice = _segments(
            node, path.parent, run, end, selfcheck_seconds.get(node["instanceId"], 0.0)
        )
        shown = [
            Segment(max(0.0, begin - start), stop - start, kind)
            for begin, stop, kind in segments
            if stop > start
        ]
        if shown:
            lanes.append((node["bootedAt"], Lane(node["instanceId"], node["lifecycle"], shown)))
        if notice is not None and start <= notice <= end:
            marks.append(Mark(notice - start, f"spot notice to {node['instanceId'][:10]}…"))
    return [lane for _, lane in sorted(lanes, key=lambda pair: pair[0])], marks


def read_launch(node: Path, run: str) -> LaunchPhases:
    """The node's way from its launch to its first step in a run, from what lies in its folder."""
    lines = (node / "console.log").read_text(errors="replace").splitlines()
    booted = json.loads((node / "node.json").read_text()).get("bootedAt")
    events = [
        json.loads(line)
        for file in sorted((state_dir(node) / "runs" / run).glob("gen-*/events-rank*.jsonl"))
        for line in file.read_text(errors="replace").splitlines()
        if line.endswith("}")
    ]
    return launch_phases(node.name, booted, lines, lines, events)


def _time(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _segments(
    node: Mapping[str, Any], folder: Path, run: str, end: float, selfcheck_seconds: float
) -> tuple[list[tuple[float, float, str]], float | None]:
    """(begin, end, kind) in seconds since the epoch, in drawing order, and the time of a notice."""
    booted = float(node["bootedAt"])
    agent = booted + float(node.get("bootSeconds") or 0.0)
    ready = agent + selfcheck_seconds
    notice = node.get("notice")
    gone = min(end, _time(node["updatedAt"])) if node["state"] == "gone" else end
    segments = [(booted, agent, "boot"), (agent, ready, "selfcheck"), (ready, gone, "wait")]
    for events_file in sorted((state_dir(folder) / "runs" / run).glob("gen-*/events-rank*.jsonl")):
        lines = [line for line in events_file.read_text(errors="replace").splitlines() if line.strip()]
        times = [float(event["time"]) for event in map(json.loads, lines)]
        if times:
            segments.append((times[0], times[-1], "train"))
    if notice:
        segments.append((float(notice["at"]), gone, "notice"))
    return segments, float(notice["at"]) if notice else None
