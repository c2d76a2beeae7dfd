"""What a run left behind, on its nodes' disks and in the bucket: all that a fault's verdict is judged by.

Times are seconds since the epoch, on this machine's one clock: it runs every node. What a killed writer cut off
in the middle (a last line) is skipped.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from trainer.contracts import keys
from trainer.contracts.manifests import CheckpointManifest, DatasetManifest, LatestPointer
from trainer.contracts.run import RunConfig, RunResult
from trainer.contracts.worker import WORKER_FILE, WorkerConfig, WorkerEvent

from ..facts import Facts
from ..nodes import console
from ..story import state_dir

OFF = ("gone", "stopped")  # states of a node that nobody pays for
GENERATION_FOLDER = re.compile(r"^gen-(\d+)$")
EVENTS_FILE = re.compile(r"^events-rank(\d+)\.jsonl$")


@dataclass(frozen=True)
class GenerationEvidence:
    n: int
    by_rank: Mapping[
        tuple[str, int], tuple[WorkerEvent, ...]
    ]  # (instance id, global rank) -> its event lines
    members: tuple[str, ...] | None = None  # instance ids in node-rank order; None: no document was found

    @cached_property
    def rank0(self) -> tuple[WorkerEvent, ...]:
        """The run's own record of this generation; empty where rank 0 wrote nothing."""
        return next((events for (_, rank), events in self.by_rank.items() if rank == 0), ())

    @cached_property
    def started(self) -> WorkerEvent | None:
        """Where it went on from; None: it ended before that was known."""
        return next((event for event in self.rank0 if event.kind == "started"), None)

    @cached_property
    def steps(self) -> tuple[WorkerEvent, ...]:
        """Steps that were done, as rank 0 told them; one whose loss was no number was not."""
        return tuple(e for e in self.rank0 if e.kind == "step" and not e.non_finite)

    @cached_property
    def newest_step(self) -> int:
        """The last step that any rank did, else the one it went on from."""
        events = (event for events in self.by_rank.values() for event in events)
        steps = [e.step or 0 for e in events if e.kind in ("started", "step") and not e.non_finite]
        return max(steps, default=0)


@dataclass(frozen=True)
class AgentLine:
    """One line of an agent's log, see `trainer.obs.logs`."""

    time: float
    instance_id: str
    level: str  # info, warning, error, critical
    event: str
    fields: Mapping[str, Any]  # the whole line


@dataclass(frozen=True)
class NodeStop:
    """A node that ended by itself, in its bootstrap or by its agent, with a named exit code."""

    time: float
    instance_id: str
    code: int
    line: str  # for people


@dataclass(frozen=True)
class NodeLife:
    """When a node was billed."""

    instance_id: str
    since: float  # its first boot
    until: float | None = None  # None: it still is


@dataclass(frozen=True)
class NodeEvidence:
    """What lies on the nodes' disks."""

    generations: tuple[GenerationEvidence, ...] = ()  # by number
    agent_lines: tuple[AgentLine, ...] = ()  # by time
    node_stops: tuple[NodeStop, ...] = ()  # by time
    lives: tuple[NodeLife, ...] = ()  # by instance id
    train_samples: int | None = None  # of the run's dataset, as a node synced it; None: no node has it


@dataclass(frozen=True)
class RunEvidence:
    run: str
    config: RunConfig | None
    result: RunResult | None
    generations: tuple[GenerationEvidence, ...] = ()
    manifests: tuple[CheckpointManifest, ...] = ()  # of the bucket, by step
    broken_manifests: tuple[str, ...] = ()  # names of objects that are no manifest
    latest: LatestPointer | None = None
    checkpoint_verified: bool = False  # every byte that `latest` leads to was hashed and is right
    agent_lines: tuple[AgentLine, ...] = ()
    node_stops: tuple[NodeStop, ...] = ()
    lives: tuple[NodeLife, ...] = ()
    train_samples: int | None = None


def lost_steps(generations: Sequence[GenerationEvidence], since: float = 0.0) -> int:
    """Steps that were done and had to be done again, over all generations that started later than `since`."""
    lost, done = 0, 0
    for generation in generations:
        started = generation.started
        if started is not None and started.time > since:
            lost += max(0, done - (started.step or 0))
        done = generation.newest_step if started is not None else max(done, generation.newest_step)
    return lost


def surviving_steps(generations: Sequence[GenerationEvidence]) -> list[tuple[int, WorkerEvent]]:
    """Generation and step event of all steps that the run's state has in it: a generation's steps count up to where
    the first later generation that began went on from; what it did beyond is done again, or was in vain.
    """
    counted: list[tuple[int, WorkerEvent]] = []
    limit = math.inf
    for generation in reversed(generations):
        counted += [(generation.n, event) for event in generation.steps if (event.step or 0) <= limit]
        if generation.started is not None:
            limit = min(limit, generation.started.step or 0)
    return sorted(counted, key=lambda pair: (pair[1].step or 0, pair[0]))


def collect(local: Path, run: str, facts: Facts) -> RunEvidence:
    """Everything there is on a run of the live stack below `local`. Raises boto's errors where S3 gives no answer."""
    config = facts.run_config(run)
    nodes = read_nodes(local / "nodes", run, config)
    manifests, broken = read_manifests(facts, run)
    pointer = facts.get(keys.latest(run))
    return RunEvidence(
        run=run,
        config=config,
        result=facts.run_result(run),
        generations=nodes.generations,
        manifests=manifests,
        broken_manifests=broken,
        latest=None if pointer is None else LatestPointer.from_json(pointer),
        checkpoint_verified=facts.checkpoint(run).verified,
        agent_lines=nodes.agent_lines,
        node_stops=nodes.node_stops,
        lives=nodes.lives,
        train_samples=nodes.train_samples,
    )


def read_manifests(facts: Facts, run: str) -> tuple[tuple[CheckpointManifest, ...], tuple[str, ...]]:
    """The bucket's checkpoint manifests by step, and the names of those that cannot be read."""
    found: list[CheckpointManifest] = []
    broken: list[str] = []
    pages = facts.s3.get_paginator("list_objects_v2").paginate(
        Bucket=facts.bucket, Prefix=keys.checkpoints(run)
    )
    for key in (entry["Key"] for page in pages for entry in page.get("Contents", [])):
        body = facts.get(key) if key.endswith("/manifest.json") else None
        if body is not None:
            try:
                found.append(CheckpointManifest.from_json(body))
            except ValidationError:
                broken.append(key)
    return tuple(sorted(found, key=lambda manifest: manifest.step)), tuple(broken)


def read_nodes(nodes: Path, run: str, config: RunConfig | None) -> NodeEvidence:
    """From the folders `<nodes>/<instance id>/`; dead nodes' folders are kept by the driver."""
    by_rank: dict[int, dict[tuple[str, int], tuple[WorkerEvent, ...]]] = {}
    members: dict[int, tuple[str, ...]] = {}
    lines: list[AgentLine] = []
    stops: list[NodeStop] = []
    lives: list[NodeLife] = []
    samples: int | None = None
    for node in sorted(path.parent for path in nodes.glob("*/node.json")):
        lives.append(_life(node))
        own_lines, own_stops = read_console(node / "console.log", node.name)
        lines += own_lines
        stops += own_stops
        if config is not None and samples is None:
            samples = _train_samples(state_dir(node) / "data", config.training.dataset)
        for folder in sorted((state_dir(node) / "runs" / run).glob("gen-*")):
            found = GENERATION_FOLDER.match(folder.name)
            if found is None:
                continue
            generation = by_rank.setdefault(int(found[1]), {})
            for file in folder.glob("events-rank*.jsonl"):
                if rank := EVENTS_FILE.match(file.name):
                    generation[node.name, int(rank[1])] = parse_events(_lines(file))
            if ids := _members(folder / WORKER_FILE):
                members[int(found[1])] = ids
    return NodeEvidence(
        generations=tuple(GenerationEvidence(n, by_rank[n], members.get(n)) for n in sorted(by_rank)),
        agent_lines=tuple(sorted(lines, key=lambda line: line.time)),
        node_stops=tuple(sorted(stops, key=lambda stop: stop.time)),
        lives=tuple(lives),
        train_samples=samples,
    )


def parse_events(lines: Iterable[str]) -> tuple[WorkerEvent, ...]:
    events: list[WorkerEvent] = []
    for line in lines:
        try:
            events.append(WorkerEvent.from_json(line))
        except ValidationError:
            continue
    return tuple(events)


def read_console(path: Path, instance_id: str) -> tuple[list[AgentLine], list[NodeStop]]:
    """The agent's lines among all those of a console, and how bootstrap and agent ended where they failed."""
    lines: list[AgentLine] = []
    stops: list[NodeStop] = []
    for text in _lines(path):
        step = console.parse(text)
        if step is not None and step[1].startswith(console.FAILED):
            line = step[1].removeprefix(console.FAILED).strip()
            code = line.partition(" ")[0]
            if code.isdigit():
                stops.append(NodeStop(step[0], instance_id, int(code), line))
        elif (found := _agent_line(text, instance_id)) is not None:
            lines.append(found)
            code = found.fields.get("code")
            if found.event.startswith("agent ended") and isinstance(code, int):
                stops.append(NodeStop(found.time, instance_id, code, str(found.fields.get("reason", ""))))
    return lines, stops


def _agent_line(text: str, instance_id: str) -> AgentLine | None:
    _, brace, rest = text.partition("{")
    try:
        fields = json.loads(brace + rest)
        return AgentLine(
            _seconds(str(fields["time"])), instance_id, str(fields["level"]), str(fields["event"]), fields
        )
    except (ValueError, KeyError, TypeError):  # another program's line, or half a line
        return None


def _life(node: Path) -> NodeLife:
    record = json.loads((node / "node.json").read_text())
    until = _seconds(record["updatedAt"]) if record["state"] in OFF else None
    return NodeLife(node.name, float(record["bootedAt"]), until)


def _members(path: Path) -> tuple[str, ...] | None:
    try:
        config = WorkerConfig.from_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
    return tuple(member.instance_id for member in config.generation.members)


def _train_samples(data: Path, dataset: str) -> int | None:
    name, _, version = dataset.partition("@")
    try:
        manifest = DatasetManifest.from_json((data / name / version / "manifest.json").read_bytes())
    except (OSError, ValidationError):
        return None
    return sum(shard.samples for shard in manifest.shards if shard.split == "train")


def _lines(path: Path) -> list[str]:
    return path.read_text(errors="replace").splitlines() if path.is_file() else []


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
