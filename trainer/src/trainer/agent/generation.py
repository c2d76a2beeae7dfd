"""What a node does next in a run: a pure function of what it sees. Every node calls it at every poll.

A generation is one fixed world of members that train together. Generation n ends for a node when its workers end;
n+1 is published by the leader once n is over, nobody runs any more and enough members are ready. Two nodes that
both believe to lead are harmless: only one conditional write of ``generation.json`` can win.

The whole world is ``run.nodes``. Where the run allows it a smaller one trains until the missing members come: then the
first member stops all at one step, and the next generation is larger.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..contracts.run import Generation, MemberReport, RunConfig
from ..contracts.worker import StopReason
from ..exit_codes import NEVER_REPLACE, Exit
from .pace import Pace
from .world import choose, cut_pairs, version_pairs

PLANNED = frozenset({Exit.DONE, Exit.STOPPED_SAVED, Exit.STOPPED_STALE})
# A node that failed with one of these has ended the run, not only itself.
RUN_FAILED = NEVER_REPLACE | {Exit.BUG, Exit.S3, Exit.PEER_LOST}


@dataclass(frozen=True)
class Peer:
    """A member as this node sees it; all times are on this node's monotonic clock."""

    report: MemberReport
    fresh: bool  # its beat was seen to change within the lease
    stale: bool  # its beat was not seen to change for longer than the lease; neither of both: seen for the first time
    life_cycle: (
        str | None
    )  # of its Auto Scaling group: InService, Terminating:Wait...; None: no longer in a group
    apart_seconds: float = 0.0  # how long it has not been running the generation that this node runs
    cut_seconds: float = (
        0.0  # how long it and this node have not reached each other, in one direction at least
    )

    @property
    def gone(self) -> bool:
        return self.stale or self.life_cycle is None or self.life_cycle == "Terminated"

    @property
    def ready(self) -> bool:
        return self.fresh and self.life_cycle == "InService" and self.report.state in ("ready", "finished")


@dataclass(frozen=True)
class View:
    me: str
    run: RunConfig
    stop_requested: bool
    generation: Generation | None
    peers: Mapping[str, Peer]  # by instance id, this node included
    waited_seconds: float = 0.0  # since this node became ready
    hold_seconds: float = 0.0  # still to wait after failed generations (back-off)
    over: bool = False  # the run has a result
    ran_seconds: float = 0.0  # since this node started the workers that it runs
    progressed: bool = False  # they finished a step
    reached: frozenset[str] = frozenset()  # members that answered this node's last probe
    trained_seconds: float = 0.0  # the run's, in all generations
    most_seconds: float | None = None  # that it may train on this node's group; None: no limit
    pace: Pace = field(default_factory=Pace)

    @property
    def mine(self) -> MemberReport:
        return self.peers[self.me].report

    @property
    def used_up(self) -> str | None:
        """Why the run must not go on for its length; None while it may."""
        if self.most_seconds is None or self.trained_seconds < self.most_seconds:
            return None
        return used_up_message(self.most_seconds)

    def chosen(self, ids: Iterable[str]) -> tuple[str, ...]:
        """Those of ``ids`` that would make the next world."""
        reports = {id_: self.peers[id_].report for id_ in ids}
        return choose(reports, cut_pairs(reports) | version_pairs(reports), self.run.nodes)

    def cut_off(self, ids: Iterable[str]) -> list[str]:
        """Those of ``ids`` that this node does not reach, or that do not reach it."""
        reports = {id_: self.peers[id_].report for id_ in {*ids, self.me} if id_ in self.peers}
        return sorted(id_ for pair in cut_pairs(reports) if self.me in pair for id_ in pair - {self.me})


def used_up_message(most_seconds: float) -> str:
    return (
        f"it has trained {most_seconds / 3600:g} h, the maxRunHours of its group; saved, and its nodes are released. "
        "To go on: raise maxRunHours, or start a new run"
    )


@dataclass(frozen=True)
class Wait:
    why: str


@dataclass(frozen=True)
class Publish:
    n: int
    members: tuple[str, ...]  # instance ids in node-rank order; the publisher is the first


@dataclass(frozen=True)
class Start:
    generation: Generation
    node_rank: int


@dataclass(frozen=True)
class Stop:
    """``save``: stop at a common step and save; else end the workers at once, a member of their world is missing."""

    save: bool
    why: str
    reason: StopReason = "user"  # what the workers are told


@dataclass(frozen=True)
class Conclude:
    status: Literal["finished", "failed", "stopped"]
    exit_code: int
    message: str
    released: bool = False


@dataclass(frozen=True)
class Leave:
    """The run has its result; nothing more to do in it."""


Action = Wait | Publish | Start | Stop | Conclude | Leave


def decide(view: View) -> Action:
    if view.mine.state == "running":
        return _while_running(view)
    return Leave() if view.over else _while_waiting(view)


def node_rank(generation: Generation, instance_id: str) -> int | None:
    ids = [member.instance_id for member in generation.members]
    return ids.index(instance_id) if instance_id in ids else None


def _while_running(view: View) -> Action:
    generation, mine = view.generation, view.mine
    if generation is None or generation.n != mine.generation:
        return Stop(save=False, why="another generation was published without this node")
    if view.over:
        return Stop(save=False, why="the run has a result")
    if view.stop_requested:
        absent = _not_begun(view, generation)
        if (
            absent and not view.progressed
        ):  # they will not begin any more, and nothing is done that could be saved
            why = (
                f"the run was stopped by its owner before {', '.join(absent)} began generation {generation.n}"
            )
            return Stop(save=False, why=why)
        return Stop(save=True, why="the run was stopped by its owner")
    if view.used_up:
        return Stop(save=True, why=view.used_up, reason="limit")
    for member in generation.members:
        fault = _lost(view.peers.get(member.instance_id), generation.n, view.pace)
        if member.instance_id != view.me and fault:
            return Stop(save=False, why=f"{member.instance_id} {fault}")
    larger = _larger_world(view, generation)
    if larger:
        return Stop(save=True, why=larger, reason="regroup")
    return Wait("training")


def _not_begun(view: View, generation: Generation) -> list[str]:
    peers = {member.instance_id: view.peers.get(member.instance_id) for member in generation.members}
    return [id_ for id_, peer in peers.items() if peer is None or peer.report.generation < generation.n]


def _lost(peer: Peer | None, n: int, pace: Pace) -> str | None:
    """Why a member of the running generation cannot be counted on any more; None while it can."""
    if peer is None:
        return "has no report"
    if peer.gone:
        return "gives no sign of life" if peer.stale else "is no longer in its group"
    planned = peer.report.generation == n and peer.report.exit_code in PLANNED
    limit = pace.stopping_seconds if planned else pace.apart_seconds
    if peer.apart_seconds > limit:
        return f"is {peer.report.state} and not in generation {n} since {peer.apart_seconds:.0f} s"
    if peer.cut_seconds > pace.partition_seconds:
        return f"is alive but not reached from here since {peer.cut_seconds:.0f} s: network partition"
    return None


def _larger_world(view: View, generation: Generation) -> str | None:
    """Why to stop for a larger world; the first member decides, and not before the small one has proved itself."""
    ids = [member.instance_id for member in generation.members]
    settled = view.progressed and view.ran_seconds >= view.pace.settle_seconds
    if len(ids) >= view.run.nodes or ids[0] != view.me or not settled:
        return None
    reports = [view.peers[id_].report for id_ in ids]
    if any(report.state != "running" or report.generation != generation.n for report in reports):
        return None  # it ends already, or has not begun everywhere
    more = [id_ for id_, peer in view.peers.items() if peer.ready and id_ in view.reached and id_ not in ids]
    larger = view.chosen([*ids, *more])
    if len(larger) <= len(ids):
        return None
    joining = ", ".join(id_ for id_ in larger if id_ not in ids)
    return f"{joining} joins: the world grows from {len(ids)} to {len(larger)} of {view.run.nodes} nodes"


def _while_waiting(view: View) -> Action:
    generation, mine = view.generation, view.mine
    running = sorted(
        id_ for id_, peer in view.peers.items() if peer.report.state == "running" and not peer.gone
    )
    conclusion = None if running else _conclusion(view)
    if conclusion:
        return conclusion
    if view.stop_requested or mine.state not in ("ready", "finished"):
        return Wait(f"waiting for {', '.join(running)} to stop" if running else mine.state)
    if generation and generation.n > mine.generation and not _is_over(generation, view.peers):
        rank = node_rank(generation, view.me)
        return Start(generation, rank) if rank is not None else _left_out(view, generation)
    if running:
        if generation and node_rank(generation, view.me) is None:
            return _left_out(view, generation)
        return Wait(f"{', '.join(running)} still runs generation {generation.n if generation else 0}")
    if generation and not _is_over(generation, view.peers):
        return Wait(f"generation {generation.n} is about to start")
    return _next_generation(view)


def _conclusion(view: View) -> Conclude | None:
    """The run's end, once nobody runs any more."""
    reports = {id_: peer.report for id_, peer in sorted(view.peers.items())}
    for id_, report in reports.items():
        if report.state == "failed" and report.exit_code is not None and report.exit_code in RUN_FAILED:
            why = report.message or f"ended with {report.exit_code} ({Exit(report.exit_code).name})"
            return Conclude("failed", report.exit_code, f"{id_}: {why}")
    if view.generation:
        first = reports.get(view.generation.members[0].instance_id)
        # Rank 0 does the last save; when it is done, so is the run.
        if (
            first
            and first.state == "finished"
            and first.generation == view.generation.n
            and not first.exit_code
        ):
            return Conclude("finished", Exit.DONE, "all steps done")
        for report in reports.values():
            used_up = report.state == "finished" and bool(report.exit_code)
            if used_up and report.generation == view.generation.n and report.exit_code is not None:
                why = report.message or "it has trained as long as it may"
                return Conclude("stopped", report.exit_code, why, released=True)
    if view.stop_requested:
        return Conclude("stopped", Exit.STOPPED_SAVED, "stopped by its owner")
    if view.used_up:
        return Conclude("stopped", Exit.STOPPED_SAVED, view.used_up, released=True)
    return None


def _is_over(generation: Generation, peers: Mapping[str, Peer]) -> bool:
    """True when a member has already ended this generation or is gone: nobody can begin it any more."""
    for member in generation.members:
        peer = peers.get(member.instance_id)
        if peer is None or peer.gone or peer.report.state in ("leaving", "failed"):
            return True
        if peer.report.generation >= generation.n and peer.report.state != "running":
            return True
    return False


def _left_out(view: View, generation: Generation) -> Wait:
    cut_off = view.cut_off(member.instance_id for member in generation.members)
    if cut_off:
        return Wait(f"cut off from {', '.join(cut_off)}: waits")
    return Wait(f"generation {generation.n} is without this node")


def _next_generation(view: View) -> Action:
    ready = sorted(id_ for id_, peer in view.peers.items() if peer.ready)
    chosen = view.chosen(ready)
    if not chosen:
        return Wait("this node's own lease is not seen yet")
    if chosen[0] != view.me:
        cut_off = view.cut_off(chosen) if view.me not in chosen else []
        return Wait(f"cut off from {', '.join(cut_off)}: waits" if cut_off else f"{chosen[0]} leads")
    missing = _missing(view, ready, chosen)
    if missing and not _may_be_smaller(view, chosen):
        if view.waited_seconds > view.run.elastic.wait_seconds:
            return Conclude("failed", Exit.PEER_LOST, f"{missing} after {view.waited_seconds:.0f} s")
        return Wait(missing)
    if view.hold_seconds > 0:
        return Wait(f"backing off for {view.hold_seconds:.0f} s")
    return Publish((view.generation.n if view.generation else 0) + 1, chosen)


def _missing(view: View, ready: Sequence[str], chosen: Sequence[str]) -> str | None:
    """What the whole world lacks; None when it is whole."""
    if len(chosen) == view.run.nodes:
        return None
    words = [f"{len(chosen)} of {view.run.nodes} members are ready"]
    left_out = [id_ for id_ in ready if id_ not in chosen]
    reports = {id_: view.peers[id_].report for id_ in ready}
    cut = {id_ for pair in cut_pairs(reports) for id_ in pair}
    if unreached := [id_ for id_ in left_out if id_ in cut]:
        words.append(f"cut off are {', '.join(unreached)}")
    if any(reports[id_].versions != reports[chosen[0]].versions for id_ in left_out):
        each = "; ".join(f"{id_} {reports[id_].versions.to_json().strip()}" for id_ in ready)
        words.append(f"members differ in their versions: {each}")
    return ", ".join(words)


def _may_be_smaller(view: View, chosen: Sequence[str]) -> bool:
    """True when this world is allowed and the missing members were waited for, now or before the last generation."""
    elastic = view.run.elastic
    if len(chosen) < (elastic.min_world_nodes or view.run.nodes):
        return False
    before = [member.instance_id for member in view.generation.members] if view.generation else []
    nobody_left = bool(before) and set(before) <= set(chosen)
    return nobody_left or view.waited_seconds >= elastic.shrink_after_seconds
