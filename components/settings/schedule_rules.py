"""What may be said about sizes at set times, and about a stop when idle."""

from __future__ import annotations

from collections.abc import Iterator
from zoneinfo import available_timezones

from components.catalog import nearest

from .cron import cron_fault
from .faults import Fault, Path
from .group_model import GpuGroupSettings, Schedule
from .model import Settings

BLOCK_ACTIONS = (
    "capacity-block-start",
    "capacity-block-end",
)  # the plan's scheduled actions; a test compares them


def schedules_have_names_of_their_own(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """One scheduled action a name; a capacity block's edges have two of them."""
    names = [schedule.name for schedule in group.schedules]
    for place, name in enumerate(names):
        path = (*at, "schedules", place, "name")
        if name in names[:place]:
            yield Fault(path, f"'{name}' is there twice", "name each schedule once")
        if name in BLOCK_ACTIONS:
            yield Fault(path, f"'{name}' is the name of a capacity block's action", "choose another")


def schedules_are_times(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Cron text of five fields, and a time zone of the IANA database; Auto Scaling takes no two of one time."""
    # Empty where the machine has no database of them; reading it takes longer than all other rules together.
    zones = available_timezones() if group.schedules else set[str]()
    times: list[tuple[str, ...]] = []
    for place, schedule in enumerate(group.schedules):
        path = (*at, "schedules", place)
        if fault := cron_fault(schedule.recurrence):
            yield Fault(
                (*path, "recurrence"), fault, "such as '0 20 * * 1-5', weekdays at eight in the evening"
            )
        if zones and schedule.time_zone not in zones:
            yield Fault(
                (*path, "timeZone"),
                f"unknown time zone '{schedule.time_zone}'",
                "an IANA name such as Europe/Berlin",
                nearest(schedule.time_zone, zones),
            )
        time = (schedule.time_zone, *schedule.recurrence.lower().split())
        if time in times:
            yield Fault(
                (*path, "recurrence"), "another schedule has this time", "put both into one, or move one"
            )
        times.append(time)


def schedules_keep_within_the_group(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Sizes from the group's minNodes to its maxNodes, in order, and at least one of them."""
    for place, schedule in enumerate(group.schedules):
        path = (*at, "schedules", place)
        sizes = _sizes(schedule)
        if not sizes:
            yield Fault(path, "changes nothing", "give desiredNodes, minNodes or maxNodes")
        for key, nodes in sizes.items():
            if not group.min_nodes <= nodes <= group.max_nodes:
                yield Fault(
                    (*path, key),
                    f"{nodes} is outside the group's minNodes and maxNodes",
                    f"from {group.min_nodes} to {group.max_nodes}",
                )
        in_order = [sizes[key] for key in ("minNodes", "desiredNodes", "maxNodes") if key in sizes]
        if in_order != sorted(in_order):
            yield Fault(path, "minNodes, desiredNodes and maxNodes are not in order", "from small to large")


def schedules_leave_each_other_room(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """What one sets stays until another sets it; Auto Scaling refuses an action whose size is then out of bounds."""
    least = max((one for one in group.schedules if one.min_nodes is not None), key=_least, default=None)
    most = min((one for one in group.schedules if one.max_nodes is not None), key=_most, default=None)
    for place, schedule in enumerate(group.schedules):
        path, nodes = (*at, "schedules", place, "desiredNodes"), schedule.desired_nodes
        if nodes is None:
            continue
        if most is not None and schedule.max_nodes is None and nodes > _most(most):
            yield Fault(
                path,
                f"{nodes} is above maxNodes {most.max_nodes}, which '{most.name}' sets",
                "write maxNodes here too, or desiredNodes in place of it there",
            )
        if least is not None and schedule.min_nodes is None and nodes < _least(least):
            yield Fault(
                path,
                f"{nodes} is below minNodes {least.min_nodes}, which '{least.name}' sets",
                "write minNodes here too, or desiredNodes in place of it there",
            )


def _least(schedule: Schedule) -> int:
    return schedule.min_nodes or 0


def _most(schedule: Schedule) -> int:
    return schedule.max_nodes or 0


def idle_stop_may_empty_the_group(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Auto Scaling never scales a group in below its least size."""
    if group.idle_stop_minutes is None:
        return
    floors = [((*at, "minNodes"), group.min_nodes)]
    floors += [
        ((*at, "schedules", place, "minNodes"), schedule.min_nodes or 0)
        for place, schedule in enumerate(group.schedules)
    ]
    for path, nodes in floors:
        if nodes > 0:
            yield Fault(path, f"{nodes} nodes would stay after idleStopMinutes", "write 0, or remove that")


def _sizes(schedule: Schedule) -> dict[str, int]:
    sizes = {
        "minNodes": schedule.min_nodes,
        "desiredNodes": schedule.desired_nodes,
        "maxNodes": schedule.max_nodes,
    }
    return {key: nodes for key, nodes in sizes.items() if nodes is not None}


RULES = (
    schedules_have_names_of_their_own,
    schedules_are_times,
    schedules_keep_within_the_group,
    schedules_leave_each_other_room,
    idle_stop_may_empty_the_group,
)
