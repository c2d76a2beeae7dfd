"""What an Auto Scaling group does next: pure decisions over plain views of its instances.

Sources: the Auto Scaling user guide on lifecycle hooks, purchase options and termination policies, as
recorded in the reference notes (2026-11).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

LAUNCHING = "autoscaling:EC2_INSTANCE_LAUNCHING"
TERMINATING = "autoscaling:EC2_INSTANCE_TERMINATING"

# States that count towards the desired capacity. A terminating instance does not, even while its hook
# waits: its replacement starts at once.
COUNTED = frozenset({"Pending", "Pending:Wait", "Pending:Proceed", "InService"})
WARMED = "Warmed:"  # how the states of the warm pool begin
READY_IN_POOL = frozenset({"Warmed:Stopped", "Warmed:Running"})


@dataclass(frozen=True)
class Member:
    """One instance of a group, as far as the decisions below care."""

    instance_id: str
    state: str  # LifecycleState
    spot: bool
    subnet: str
    template_version: int
    launched_at: float  # any monotonic clock
    protected: bool = False

    @property
    def counted(self) -> bool:
        return self.state in COUNTED

    @property
    def warm(self) -> bool:
        return self.state.startswith(WARMED)


def on_demand_wanted(desired: int, base: int, percent_above_base: int) -> int:
    """On-demand instances among `desired`: the base first, then the percentage of the rest, rounded up."""
    if desired <= base:
        return desired
    return base + math.ceil((desired - base) * percent_above_base / 100)


def next_purchases(members: Sequence[Member], desired: int, on_demand: int) -> list[bool]:
    """One entry for each instance to launch: True is spot. On demand is filled first."""
    counted = [m for m in members if m.counted]
    return _purchases(max(0, desired - len(counted)), counted, on_demand)


def _purchases(launches: int, present: Sequence[Member], on_demand: int) -> list[bool]:
    missing_on_demand = max(0, on_demand - sum(not m.spot for m in present))
    return [index >= missing_on_demand for index in range(launches)]


def pool_wanted(prepared: int, minimum: int, in_group: int) -> int:
    """The warm pool's size: what is missing between the group and `prepared`, at least `minimum`."""
    return max(minimum, prepared - in_group, 0)


def pool_purchases(members: Sequence[Member], wanted: int, on_demand: int) -> list[bool]:
    """One entry for each instance to launch into the pool: True is spot. `on_demand` is what a group would have of
    that kind once it took the whole pool in, so that instances come out of the pool as the group would buy them."""
    present = [m for m in members if m.counted or m.warm]
    return _purchases(max(0, wanted - sum(m.warm for m in members)), present, on_demand)


def taken_from_pool(members: Sequence[Member], purchases: Sequence[bool]) -> list[str | None]:
    """For each of the group's launches the warm instance to take, the longest ready first; None: launch a new one."""
    ready = sorted((m for m in members if m.state in READY_IN_POOL), key=lambda m: m.launched_at)
    taken: list[str | None] = []
    for spot in purchases:
        found = next((m for m in ready if m.spot == spot), None)
        taken.append(found.instance_id if found else None)
        if found:
            ready.remove(found)
    return taken


def pool_surplus(members: Sequence[Member], wanted: int) -> list[str]:
    """Warm instances that the pool does not need, those of the oldest template first."""
    warm = sorted((m for m in members if m.warm), key=lambda m: (m.template_version, m.launched_at))
    return [m.instance_id for m in warm[: max(0, len(warm) - wanted)]]


def scale_in_choice(members: Sequence[Member], desired: int, on_demand: int) -> list[str]:
    """Instances to terminate, in order: the purchase kind in surplus, the fullest zone, the oldest template,
    then the oldest instance. Protected instances stay, so that a group may remain above its desired size."""
    counted = [m for m in members if m.counted]
    chosen: list[str] = []
    while len(counted) > desired:
        open_to_choice = [m for m in counted if not m.protected]
        if not open_to_choice:
            break
        zone_size = Counter(m.subnet for m in counted)
        surplus_is_on_demand = sum(not m.spot for m in counted) > on_demand
        victim = min(
            open_to_choice,
            key=lambda m: (
                m.spot == surplus_is_on_demand,
                -zone_size[m.subnet],
                m.template_version,
                m.launched_at,
            ),
        )
        chosen.append(victim.instance_id)
        counted.remove(victim)
    return chosen


def emptiest_subnet(subnets: Sequence[str], members: Sequence[Member]) -> str:
    """The subnet for the next launch: the one with the fewest instances, the first of equals."""
    used = Counter(m.subnet for m in members if m.counted or m.warm)
    return min(subnets, key=lambda subnet: used[subnet])


@dataclass(frozen=True)
class Wait:
    """A lifecycle action under way: an instance that waits for its hook."""

    hook: str
    transition: str
    token: str
    default_result: str
    heartbeat_seconds: float
    deadline: float
    last_deadline: float  # 100 heartbeats or 48 hours, whichever is less; heartbeats do not go beyond it

    def prolonged(self, now: float) -> Wait:
        return replace(self, deadline=min(now + self.heartbeat_seconds, self.last_deadline))


def begin_wait(
    hook: str, transition: str, token: str, default_result: str, heartbeat_seconds: float, now: float
) -> Wait:
    limit = min(100 * heartbeat_seconds, 48 * 3600)
    return Wait(
        hook, transition, token, default_result, heartbeat_seconds, now + heartbeat_seconds, now + limit
    )


def after_wait(wait: Wait, result: str) -> str:
    """The state that follows a finished lifecycle action: `InService` (for a warm instance: the pool's) or
    `Terminated`.

    A terminating instance terminates whatever the result is; ABANDON only ends the remaining hooks early.
    """
    if wait.transition == LAUNCHING and result == "CONTINUE":
        return "InService"
    return "Terminated"
