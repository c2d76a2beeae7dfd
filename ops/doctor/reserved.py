"""Reservations and placement groups that exist already, against what the configuration says of them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from components.compute.plan import GroupPlan
from components.settings import GpuGroupSettings
from components.settings.group_model import Reservation
from ops.account import Account, code_of

from .finding import Check, Finding, fail, ok, warn


def reservation_verdict(
    group: GpuGroupSettings, wanted: Reservation, held: Mapping[str, Any], now: datetime.datetime
) -> Finding:
    """A reservation as EC2 describes it against what the configuration says of it."""
    check = f"reservation of {group.name}"
    type_, zone = held.get("InstanceType"), held.get("AvailabilityZone")
    total, state = held.get("TotalInstanceCount", 0), str(held.get("State"))
    kind = "capacity-block" if held.get("ReservationType") == "capacity-block" else "on-demand"
    end = held.get("EndDate")
    answer = f"{state}, {total} {type_} in {zone}, {kind}" + (f", until {_utc(end)}" if end else "")
    faults: list[str] = []
    if kind != wanted.kind:
        faults.append(f"it is of kind {kind}, not {wanted.kind}")
    if type_ not in group.instance_types:
        faults.append(f"it is of {type_}, the group of {', '.join(group.instance_types)}")
    if wanted.zone not in (zone, held.get("AvailabilityZoneId")):
        faults.append(f"it lies in {zone}, not in {wanted.zone}")
    if total < wanted.count:
        faults.append(f"it holds {total} instances, not {wanted.count}")
    if state in ("expired", "cancelled", "failed", "payment-failed", "unsupported", "delayed"):
        faults.append(f"it is {state}")
    if end and end <= now:
        faults.append("its end has passed")
    for key, told, words in (
        ("StartDate", wanted.starts_at, "startsAt"),
        ("EndDate", wanted.ends_at, "endsAt"),
    ):
        if told and held.get(key) and _utc(held[key]) != _utc(_parsed(told)):
            faults.append(f"{words} says {told}, it has {_utc(held[key])}")
    if faults:
        return fail(check, wanted.id, f"{answer}: {'; '.join(faults)}", "correct the group's reservation")
    if state not in ("active",):
        return warn(check, wanted.id, answer, "nodes come when it is active")
    if held.get("AvailableInstanceCount", total) < wanted.count:
        free = held["AvailableInstanceCount"]
        return warn(
            check, wanted.id, f"{answer}, {free} free now", "somebody uses it; a launch above that fails"
        )
    return ok(check, wanted.id, answer)


def reservation_checks(
    account: Account, groups: Sequence[GpuGroupSettings], now: datetime.datetime
) -> list[Check]:
    return [
        Check(
            f"reservation of {group.name}",
            group.reservation.id,
            "ec2:DescribeCapacityReservations",
            lambda group=group, wanted=group.reservation: [_reservation(account, group, wanted, now)],
        )
        for group in groups
        if group.reservation is not None
    ]


def _reservation(
    account: Account, group: GpuGroupSettings, wanted: Reservation, now: datetime.datetime
) -> Finding:
    try:
        held = account.client("ec2").describe_capacity_reservations(CapacityReservationIds=[wanted.id])
    except ClientError as error:
        if not code_of(error).startswith("InvalidCapacityReservationId"):
            raise
        held = {"CapacityReservations": []}
    if not held["CapacityReservations"]:
        return fail(
            f"reservation of {group.name}",
            wanted.id,
            f"there is none in {account.region} for this account",
            "write the id of one, or have it shared with this account",
        )
    return reservation_verdict(group, wanted, held["CapacityReservations"][0], now)


def placement_checks(account: Account, plans: Sequence[GroupPlan]) -> list[Check]:
    return [
        Check(
            f"placement group of {plan.name}",
            plan.placement_group_id,
            "ec2:DescribePlacementGroups",
            lambda plan=plan, id_=plan.placement_group_id: [_placement(account, plan, id_)],
        )
        for plan in plans
        if plan.placement_group_id is not None
    ]


def placement_verdict(group: str, id_: str, held: Mapping[str, Any] | None) -> Finding:
    check = f"placement group of {group}"
    if held is None:
        return fail(check, id_, "there is none of this id", "write one that exists, cluster, or none")
    answer = f"{held.get('GroupName')}, {held.get('Strategy')}, {held.get('State')}"
    if held.get("State") != "available":
        return fail(check, id_, answer, "wait until it is available, or write another")
    if held.get("Strategy") != "cluster":
        return warn(check, id_, answer, "only strategy cluster shortens the network between nodes")
    return ok(check, id_, answer)


def _placement(account: Account, plan: GroupPlan, id_: str) -> Finding:
    try:
        held = account.client("ec2").describe_placement_groups(GroupIds=[id_])["PlacementGroups"]
    except ClientError as error:
        if not code_of(error).startswith("InvalidPlacementGroup"):
            raise
        held = []
    return placement_verdict(plan.name, id_, held[0] if held else None)


def _parsed(text: str) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _utc(moment: datetime.datetime) -> str:
    return moment.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ")
