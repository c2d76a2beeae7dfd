"""How a run stands, from its documents alone."""

from __future__ import annotations

import datetime
from dataclasses import asdict, dataclass, field
from typing import Any

from ..agent.board import Board
from ..agent.cost import all_usage, run_cost
from ..contracts.cost import RunCost
from ..contracts.run import Generation, MemberReport, RunConfig, RunPointer, RunResult
from ..report.progress import Progress, progress_of
from ..report.reader import EventReader


@dataclass(frozen=True)
class MemberStatus:
    instance_id: str
    group: str
    state: str
    generation: int
    node_rank: int | None  # in the current generation; None: no member of it
    exit_code: int | None
    message: str | None


@dataclass(frozen=True)
class RunStatus:
    """``state``: waiting (for members), training, stopping, or the result's finished, failed, stopped."""

    run: str
    state: str
    action: str | None  # of the pointer of its first group; None: the group is at another run
    nodes: int  # the whole world
    world: int  # nodes that train now; fewer than `nodes` where the run may shrink, 0 while none train
    generation: int  # 0: none yet
    progress: Progress
    eta_seconds: float | None
    members: list[MemberStatus] = field(default_factory=list)
    result: RunResult | None = None
    cost: RunCost | None = None  # so far, or the result's

    def to_dict(self) -> dict[str, Any]:
        """Plain values with camelCase keys, absent ones left out."""
        data = asdict(self)
        for name, document in (("result", self.result), ("cost", self.cost)):
            data[name] = (
                document.model_dump(mode="json", by_alias=True, exclude_none=True) if document else None
            )
        return _camel(data)


def read_status(board: Board, config: RunConfig, events: EventReader | None = None) -> RunStatus:
    """``events``: whoever looks again and again keeps the reader."""
    events = events or EventReader(board.store, board.bucket, config.name)
    pointer = board.pointer(config.groups[0])
    generation, _ = board.generation(config.name)
    reports, result = board.reports(config.name), board.result(config.name)
    cost = result.cost if result is not None else run_cost(all_usage(reports, board.usage(config.name)))
    return summarise(
        config,
        pointer if pointer and pointer.run == config.name else None,
        generation,
        reports,
        progress_of(events.look()),
        result,
        cost,
    )


def summarise(
    config: RunConfig,
    pointer: RunPointer | None,
    generation: Generation | None,
    reports: dict[str, MemberReport],
    progress: Progress,
    result: RunResult | None,
    cost: RunCost | None = None,
) -> RunStatus:
    ranks = {member.instance_id: rank for rank, member in enumerate(generation.members)} if generation else {}
    current = generation.n if generation else 0
    running = [r for r in reports.values() if r.state == "running" and r.generation == current]
    if result is not None:
        state = result.status
    elif pointer is not None and pointer.action == "stop":
        state = "stopping"
    else:
        state = "training" if running else "waiting"
    left = (progress.total_steps or 0) - progress.step
    known = state == "training" and progress.seconds_per_step is not None and left > 0
    return RunStatus(
        run=config.name,
        state=state,
        action=pointer.action if pointer else None,
        nodes=config.nodes,
        world=len(generation.members) if generation and running else 0,
        generation=current,
        progress=progress,
        eta_seconds=round(left * (progress.seconds_per_step or 0.0), 1) if known else None,
        members=[
            MemberStatus(id_, r.member.group, r.state, r.generation, ranks.get(id_), r.exit_code, r.message)
            for id_, r in sorted(reports.items(), key=lambda item: (ranks.get(item[0], 1 << 30), item[0]))
        ],
        result=result,
        cost=cost,
    )


def duration(seconds: float) -> str:
    return str(datetime.timedelta(seconds=round(seconds)))


def _camel(value: Any) -> Any:
    if isinstance(value, dict):
        return {_camel_name(key): _camel(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_camel(item) for item in value]
    return value


def _camel_name(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)
