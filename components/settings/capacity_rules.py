"""What may be said about reserved capacity: on-demand reservations and capacity blocks."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from .faults import Fault, Path, info, warning
from .group_model import GpuGroupSettings, Reservation
from .model import Settings
from .type_rules import known_types, zones_of

# EC2 user guide, capacity blocks, 2026. Nodes leave 45 minutes before the end, as the plan has it; a test
# compares the two.
MOST_NODES_OF_A_BLOCK, MOST_DAYS_OF_A_BLOCK, BLOCK_LEAVES_MINUTES = 64, 182, 45


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


def reservation_is_of_the_placement_group(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """A launch into a cluster placement group uses reservations that were made in it, and no others (EC2 user guide,
    Capacity Reservations in cluster placement groups, 2026; ParallelCluster warns of another group's reservation).
    """
    reservation = group.reservation
    if reservation is not None and reservation.kind == "on-demand" and group.placement == "cluster":
        yield Fault(
            (*at, "placement"),
            f"cluster makes a new placement group, in which {reservation.id} cannot be",
            "write the id of the placement group that it was reserved in, or none",
        )


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
    window = _window(group)
    if window is not None and window[1] <= _now():
        yield Fault(
            (*at, "reservation", "endsAt"),
            f"the capacity block ended at {window[1]:%Y-%m-%d %H:%M} UTC: the group stays empty",
            "write the next block's id and times, or remove the group",
        )


@info
def capacity_block_is_to_come(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """A group's size is set at its creation and at the block's start: one that was there before stays as it is."""
    window = _window(group)
    if window is not None and window[0] <= _now() < window[1]:
        name = f"{settings.base_name}-{group.name}"
        yield Fault(
            (*at, "reservation", "startsAt"),
            f"the capacity block began at {window[0]:%Y-%m-%d %H:%M} UTC: only a new group is filled now",
            f"where {name} is empty: aws autoscaling set-desired-capacity --auto-scaling-group-name {name} "
            f"--desired-capacity {group.max_nodes}",
        )


def _window(group: GpuGroupSettings) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Start and end of the group's capacity block, where both are times."""
    block = _block(group)
    if block is None or block.starts_at is None or block.ends_at is None:
        return None
    start, end = _time(block.starts_at), _time(block.ends_at)
    return None if start is None or end is None else (start, end)


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)


def _block(group: GpuGroupSettings) -> Reservation | None:
    found = group.reservation
    return found if found is not None and found.kind == "capacity-block" else None


def _time(text: str) -> datetime.datetime | None:
    try:
        return datetime.datetime.fromisoformat(text.removesuffix("Z")).replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return None


RULES = (
    reservation_is_in_the_groups_zone,
    reservation_holds_the_group,
    reservation_is_of_one_type,
    reserved_group_buys_no_spot,
    capacity_block_has_its_times,
    capacity_block_is_one_that_is_sold,
    capacity_block_is_empty_at_first,
    capacity_block_has_no_placement_group,
    reservation_is_of_the_placement_group,
    capacity_block_is_paid_for,
    capacity_block_is_not_over,
    capacity_block_is_to_come,
)
