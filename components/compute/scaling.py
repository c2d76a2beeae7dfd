"""When a group changes its size by itself: at set times, for a spot group that stays short, and when idle. Pure."""

from __future__ import annotations

import datetime
from dataclasses import dataclass

from components.settings.group_model import GpuGroupSettings, Reservation

MOST_STEPS = 20  # of one step-scaling policy (Auto Scaling quotas, 2026)
# EC2 begins to terminate the nodes of a capacity block 30 minutes before its end (EC2 user guide, capacity
# blocks, 2026). Nodes leave before, so that runs save through the terminating hook.
BLOCK_LEAVES_MINUTES = 45
# From the plan to the last resource. Where a block starts within it, its scheduled action is refused as past, and
# nobody else would fill the group: Auto Scaling tries until the block is there.
CREATION_LASTS = datetime.timedelta(minutes=20)
UNCHANGED = -1  # a scheduled action's word for a size that stays; absent, the provider takes 0


@dataclass(frozen=True)
class ScheduledAction:
    """One scheduled action of an Auto Scaling group: recurring, or once at ``start_time``."""

    name: str
    min_nodes: int
    max_nodes: int
    desired_nodes: int
    recurrence: str | None = None
    time_zone: str | None = None
    start_time: str | None = None  # UTC, as 2027-01-11T11:30:00Z


@dataclass(frozen=True)
class Step:
    """The group has exactly ``nodes`` while the alarm's value is from ``lower`` to below ``upper``, both counted
    from the alarm's threshold; None is without end.
    """

    lower: float | None
    upper: float | None
    nodes: int


def plan_schedules(group: GpuGroupSettings, now: datetime.datetime) -> tuple[ScheduledAction, ...]:
    """The group's own schedules, and the edges of its capacity block that are still to come."""
    own = tuple(
        ScheduledAction(
            name=schedule.name,
            min_nodes=_or_unchanged(schedule.min_nodes),
            max_nodes=_or_unchanged(schedule.max_nodes),
            desired_nodes=_or_unchanged(schedule.desired_nodes),
            recurrence=" ".join(schedule.recurrence.split()),
            time_zone=schedule.time_zone,
        )
        for schedule in group.schedules
    )
    block = block_window(group.reservation)
    if block is None:
        return own
    edges = ((BLOCK_START, block[0], group.max_nodes), (BLOCK_END, block[1], 0))
    return own + tuple(
        ScheduledAction(name, UNCHANGED, UNCHANGED, nodes, start_time=_utc_text(at))
        for name, at, nodes in edges
        # Auto Scaling refuses a one-time action in the past, and forgets one that was done.
        if at > now
    )


BLOCK_START, BLOCK_END = "capacity-block-start", "capacity-block-end"


def block_window(reservation: Reservation | None) -> tuple[datetime.datetime, datetime.datetime] | None:
    """From when until when nodes live in the capacity block; None for a group without one."""
    if reservation is None or reservation.kind != "capacity-block":
        return None
    if reservation.starts_at is None or reservation.ends_at is None:
        return None  # told by a validator
    leave = datetime.timedelta(minutes=BLOCK_LEAVES_MINUTES)
    return utc_time(reservation.starts_at), utc_time(reservation.ends_at) - leave


def nodes_at_creation(group: GpuGroupSettings, now: datetime.datetime) -> int:
    """The number of nodes that a group is created with; afterwards it belongs to whoever scales it."""
    block = block_window(group.reservation)
    if block is not None:  # long before its start a launch would fail in vain, and one after its end too
        return group.max_nodes if block[0] - CREATION_LASTS <= now < block[1] else 0
    return group.min_nodes if group.desired_nodes is None else group.desired_nodes


def plan_fallback_steps(max_lacking: int, min_nodes: int, max_nodes: int) -> tuple[Step, ...]:
    """How many nodes a fall-back group has by the number of nodes that a spot group lacks, at most 20 steps.

    The alarm's value is that number above a threshold of 0, averaged over minutes; it is rounded to the nearest
    whole number. The group gets its least size and as many nodes more as are lacking, up to its largest size: none
    where nothing is lacking any more, which the alarm tells for some minutes yet. Where there are more numbers than
    steps, several share one, and the group gets what the largest of them needs.
    """
    most = max(1, min(max_lacking, max_nodes - min_nodes))
    width = -(-most // (MOST_STEPS - 1))
    # The last of the numbers in each step.
    lasts = [0, *(min(most, last) for last in range(width, most + width, width))]
    bounds = [0.0, *(last + 0.5 for last in lasts[:-1]), None]
    return tuple(
        Step(lower, upper, min(max_nodes, min_nodes + last))
        for lower, upper, last in zip(bounds, bounds[1:], lasts, strict=False)
    )


def always(nodes: int) -> tuple[Step, ...]:
    """Exactly so many nodes whatever the alarm's value is; one step may not be open at both ends."""
    return Step(None, 0.0, nodes), Step(0.0, None, nodes)


def utc_time(text: str) -> datetime.datetime:
    """2027-01-11T11:30Z, with or without seconds. ValueError for a day or an hour that does not exist."""
    return datetime.datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=datetime.timezone.utc)


def _utc_text(at: datetime.datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def _or_unchanged(nodes: int | None) -> int:
    return UNCHANGED if nodes is None else nodes
