"""What may be said about reserved capacity, about sizes at set times, and about a stop when idle."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from zoneinfo import available_timezones

from components.catalog import nearest

from .cron import cron_fault
from .faults import Fault, Path, warning
from .group_model import GpuGroupSettings, Reservation, Schedule
from .model import Settings
from .type_rules import known_types, zones_of

# EC2 user guide, capacity blocks, 2026. Nodes leave 45 minutes before the end, as the plan has it; a test
# compares the two.
MOST_NODES_OF_A_BLOCK, MOST_DAYS_OF_A_BLOCK, BLOCK_LEAVES_MINUTES = 64, 182, 45
BLOCK_ACTIONS = ("capacity-block-start", "capacity-block-end")  # the plan's scheduled actions


def reservation_is_in_the_groups_zone(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """A reservation lies in one zone, and a launch into it from another zone's subnet fails."""
    if group.reservation is None:
        return
    zone, zones = group.reservation.zone, zones_of(group, settings)
    if zones != [zone]:
        yield Fault(
            (*at, "zones") if group.zones is not None else at,
            f"the group launches in {', '.join(zones)}, its reservation is in {zone}",
            f"write zones: [{zone}]",
        )


def reservation_holds_the_group(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A launch into a full reservation fails; groups of one reservation fill it together."""
    reservation = group.reservation
    if reservation is None:
        return
    if group.max_nodes > reservation.count:
        yield Fault(
            (*at, "maxNodes"),
            f"{group.max_nodes} nodes, the reservation holds {reservation.count}",
            f"at most {reservation.count}",
        )
        return
    sharing = [one for one in settings.gpu_groups if one.reservation and one.reservation.id == reservation.id]
    total = sum(one.max_nodes for one in sharing)
    if total > reservation.count and group.name != sharing[0].name:
        yield Fault(
            (*at, "maxNodes"),
            f"{', '.join(one.name for one in sharing)} launch into {reservation.id}: {total} nodes, it holds "
            f"{reservation.count}",
            f"at most {reservation.count} together",
        )


def reservation_is_of_one_type(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A reservation is of one instance type (ParallelCluster: no reservation id with flexible types)."""
    if group.reservation is not None and len(group.instance_types) > 1:
        yield Fault(
            (*at, "instanceTypes"),
            f"{len(group.instance_types)} types for one reservation",
            "name the reserved type alone",
        )


def reserved_group_buys_no_spot(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Reserved capacity is no spot capacity, and a mixed policy admits no market type (kops#10104)."""
    if group.reservation is not None and group.purchase.spot_percent > 0:
        yield Fault(
            (*at, "purchase", "spotPercent"),
            f"{group.purchase.spot_percent} in a group that launches into {group.reservation.id}",
            "write 0",
        )


def capacity_block_has_its_times(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """Before its start a block launches nothing; EC2 takes its nodes from 30 minutes before its end."""
    reservation = group.reservation
    if reservation is None:
        return
    path = (*at, "reservation")
    given = {"startsAt": reservation.starts_at, "endsAt": reservation.ends_at}
    if reservation.kind == "on-demand":
        for key, text in given.items():
            if text is not None:
                yield Fault(
                    (*path, key), "only a capacity block has it", "remove it, or write kind: capacity-block"
                )
        return
    times: dict[str, datetime.datetime] = {}
    for key, text in given.items():
        if text is None:
            yield Fault((*path, key), "a capacity block needs it", "write its time in UTC, as EC2 shows it")
            continue
        if (time := _time(text)) is None:
            yield Fault((*path, key), f"'{text}' is no day and hour", "such as 2027-01-11T11:30:00Z")
        else:
            times[key] = time
    if len(times) < 2:
        return
    length = times["endsAt"] - times["startsAt"]
    if length <= datetime.timedelta(minutes=BLOCK_LEAVES_MINUTES):
        yield Fault(
            (*path, "endsAt"),
            f"no time is left: nodes leave {BLOCK_LEAVES_MINUTES} minutes before the end",
            "at least a day after startsAt",
        )
    if length > datetime.timedelta(days=MOST_DAYS_OF_A_BLOCK):
        yield Fault(
            (*path, "endsAt"),
            f"{length.days} days after startsAt",
            f"a block has at most {MOST_DAYS_OF_A_BLOCK}",
        )


def capacity_block_is_one_that_is_sold(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """P4d and newer P types, at most 64 instances a block (EC2 user guide, capacity blocks, 2026)."""
    in_block = _block(group) is not None
    for place, type_ in known_types(group):
        path = (*at, "instanceTypes", place)
        if in_block and "capacity-block" not in type_.purchase_options:
            yield Fault(
                path, f"{type_.name} is not sold in capacity blocks", "use reservation.kind: on-demand"
            )
        if not in_block and type_.purchase_options == ("capacity-block",):
            yield Fault(
                path, f"{type_.name} is sold in capacity blocks only", "add a reservation of that kind"
            )
    if in_block and group.reservation is not None and group.reservation.count > MOST_NODES_OF_A_BLOCK:
        yield Fault(
            (*at, "reservation", "count"),
            f"{group.reservation.count} instances",
            f"a block has at most {MOST_NODES_OF_A_BLOCK}",
        )


def capacity_block_is_empty_at_first(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """Outside the block's time every launch fails; scheduled actions scale out at its start and in at its end."""
    if _block(group) is None:
        return
    for key, nodes in (("minNodes", group.min_nodes), ("desiredNodes", group.desired_nodes or 0)):
        if nodes > 0:
            yield Fault((*at, key), f"{nodes} in a capacity block's group", "write 0: its times set its size")


def capacity_block_has_no_placement_group(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """A block's instances are placed already; with a group EC2 finds no capacity (terraform-aws-eks PR 3730)."""
    if _block(group) is not None and group.placement != "none":
        yield Fault((*at, "placement"), f"{group.placement} in a capacity block", "write none")


@warning
def capacity_block_is_paid_for(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A block is paid up front, and nothing scales its group out again within its time."""
    if _block(group) is None:
        return
    if group.idle_stop_minutes is not None:
        yield Fault((*at, "idleStopMinutes"), "a stop of a capacity block's nodes saves nothing", "remove it")
    if group.schedules:
        yield Fault(
            (*at, "schedules"),
            "a capacity block's nodes cost the same at any size, and outside its time every launch fails",
            "remove them: startsAt and endsAt set the size",
        )


@warning
def capacity_block_is_not_over(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A block that ended launches nothing; the group of one that is over has no nodes and gets none."""
    block = _block(group)
    end = None if block is None or block.ends_at is None else _time(block.ends_at)
    if end is not None and end < datetime.datetime.now(datetime.timezone.utc):
        yield Fault(
            (*at, "reservation", "endsAt"),
            f"the capacity block ended at {end:%Y-%m-%d %H:%M} UTC: the group stays empty",
            "write the next block's id and times, or remove the group",
        )


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


def _block(group: GpuGroupSettings) -> Reservation | None:
    found = group.reservation
    return found if found is not None and found.kind == "capacity-block" else None


def _time(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None


def _sizes(schedule: Schedule) -> dict[str, int]:
    sizes = {
        "minNodes": schedule.min_nodes,
        "desiredNodes": schedule.desired_nodes,
        "maxNodes": schedule.max_nodes,
    }
    return {key: nodes for key, nodes in sizes.items() if nodes is not None}


RULES = (
    reservation_is_in_the_groups_zone,
    reservation_holds_the_group,
    reservation_is_of_one_type,
    reserved_group_buys_no_spot,
    capacity_block_has_its_times,
    capacity_block_is_one_that_is_sold,
    capacity_block_is_empty_at_first,
    capacity_block_has_no_placement_group,
    capacity_block_is_paid_for,
    capacity_block_is_not_over,
    schedules_have_names_of_their_own,
    schedules_are_times,
    schedules_keep_within_the_group,
    schedules_leave_each_other_room,
    idle_stop_may_empty_the_group,
)
