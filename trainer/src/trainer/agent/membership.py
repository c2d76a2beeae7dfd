"""Who is there: leases judged on this node's own monotonic clock, and what to do after a failed generation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..contracts.run import MemberReport
from ..exit_codes import NEVER_REPLACE, WORKER_RESTART, Exit
from .generation import PLANNED, Peer
from .pace import Pace

BUG_RESTARTS = 3
RESTARTS_WITHOUT_PROGRESS = 8
LONGEST_HOLD_SECONDS = 60.0


@dataclass
class _Sighting:
    beat: int
    changed_at: float  # when the beat was last seen to change, or the report was first seen
    beating: bool = False
    apart_since: float | None = None
    cut_since: float | None = None


@dataclass
class Observer:
    """Remembers when each member's beat was last seen to change. No two machines' clocks are ever compared."""

    pace: Pace = field(default_factory=Pace)
    _seen: dict[str, _Sighting] = field(default_factory=dict)

    def look(
        self,
        me: str,
        reports: Mapping[str, MemberReport],
        life_cycles: Mapping[str, str],
        now: float,
    ) -> dict[str, Peer]:
        """``now`` is monotonic seconds; ``life_cycles`` has the members that are in an Auto Scaling group."""
        mine = reports[me]
        running = mine.generation if mine.state == "running" else None
        peers: dict[str, Peer] = {}
        for id_, report in reports.items():
            sighting = self._seen.setdefault(id_, _Sighting(report.beat, now))
            if report.beat != sighting.beat:
                sighting.beat, sighting.changed_at, sighting.beating = report.beat, now, True
            apart = running is not None and (report.state != "running" or report.generation != running)
            sighting.apart_since = _since(apart, sighting.apart_since, now)
            cut = id_ in mine.unreachable or me in report.unreachable
            sighting.cut_since = _since(cut, sighting.cut_since, now)
            age = now - sighting.changed_at
            is_me = id_ == me
            peers[id_] = Peer(
                report=report,
                fresh=is_me or (sighting.beating and age <= self.pace.lease_seconds),
                stale=not is_me and age > self.pace.lease_seconds,
                life_cycle=life_cycles.get(id_),
                apart_seconds=now - sighting.apart_since if sighting.apart_since is not None else 0.0,
                cut_seconds=now - sighting.cut_since if sighting.cut_since is not None else 0.0,
            )
        return peers


def _since(holds: bool, since: float | None, now: float) -> float | None:
    """When a condition began to hold without a break; None while it does not."""
    if not holds:
        return None
    return now if since is None else since


@dataclass
class Attempts:
    """Decides after each generation whether this node tries again. Progress forgives transient faults, not bugs."""

    _without_progress: int = 0
    _bugs: int = 0

    def again_after(self, code: int, progressed: bool) -> float | None:
        """Seconds to hold back before the next generation; None: this node gives up with that code."""
        if code in PLANNED:
            self._without_progress = 0
            return 0.0
        if code == Exit.BUG:
            self._bugs += 1
            return None if self._bugs > BUG_RESTARTS else min(2.0**self._bugs, LONGEST_HOLD_SECONDS)
        if code not in WORKER_RESTART:
            return None
        self._without_progress = 0 if progressed else self._without_progress + 1
        if self._without_progress > RESTARTS_WITHOUT_PROGRESS:
            return None
        return min(2.0**self._without_progress, LONGEST_HOLD_SECONDS) if self._without_progress > 1 else 0.0


def gravest(codes: list[int]) -> int:
    """The exit code that explains a node's generation: a cause before its consequence, a fault before a plan."""
    unexplained = [code for code in codes if code not in PLANNED and code != Exit.PEER_LOST]
    if unexplained:
        return max(unexplained, key=lambda code: (code in NEVER_REPLACE, code))
    for code in (Exit.PEER_LOST, Exit.STOPPED_STALE, Exit.STOPPED_SAVED):
        if code in codes:
            return int(code)
    return int(Exit.DONE)
