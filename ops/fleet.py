"""The groups of a stack as Auto Scaling and EC2 see them now, in the words of this project. The summaries are pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from components.catalog import on_demand_price, spot_price
from components.names import stack_names
from components.settings import Settings

from .account import Account
from .doctor.launches import JUDGED
from .refusal import Refused

IN_SERVICE = "InService"
ACTIVITIES = 5  # the newest of a group
# What Auto Scaling says of launches that failed, beside EC2's own codes.
SAID = {
    "could not launch spot instances": "no spot capacity in the group's zones and types",
    "was abandoned": "the node failed its boot or self-check: make logs shows why",
    "Lifecycle Action Token": "the node failed its boot or self-check: make logs shows why",
    "Max spot price": "the price limit is below today's spot price",
}


@dataclass(frozen=True)
class Node:
    """`lifecycle` is how it is bought; `state` Auto Scaling's: Pending, Pending:Wait, InService and so on."""

    instance_id: str
    group: str  # its name in the configuration
    instance_type: str
    zone: str
    state: str
    lifecycle: str  # spot | on-demand | capacity-block


@dataclass(frozen=True)
class Group:
    name: str
    auto_scaling_group: str
    desired: int
    min_nodes: int
    max_nodes: int
    nodes: tuple[Node, ...]
    suspended: tuple[str, ...]  # processes
    troubles: tuple[str, ...]  # failed scaling activities, in words, the newest first

    @property
    def in_service(self) -> int:
        return sum(node.state == IN_SERVICE for node in self.nodes)

    @property
    def pending(self) -> int:
        return sum(node.state.startswith(("Pending", "Warmed")) for node in self.nodes)

    @property
    def places(self) -> str:
        """Such as ``2 on-demand in us-east-1a, 1 spot in us-east-1b``."""
        counts = Counter((node.lifecycle, node.zone) for node in self.nodes)
        return ", ".join(f"{n} {lifecycle} in {zone}" for (lifecycle, zone), n in sorted(counts.items()))


def read_groups(account: Account, settings: Settings) -> list[Group]:
    """Raises Refused where the stack is not there, and what the calls raise."""
    names = stack_names(settings)
    wanted = {names.auto_scaling_group(group.name): group.name for group in settings.gpu_groups}
    client = account.client("autoscaling")
    pages = client.get_paginator("describe_auto_scaling_groups").paginate(AutoScalingGroupNames=list(wanted))
    found = {row["AutoScalingGroupName"]: row for page in pages for row in page["AutoScalingGroups"]}
    if not found:
        raise Refused(
            f"stack '{settings.stack}' is not up in account {account.id}, {account.region}: there is no group "
            f"{next(iter(wanted))}; `pulumi up --stack {settings.stack}` makes it"
        )
    bought = _lifecycles(account, [i["InstanceId"] for row in found.values() for i in row["Instances"]])
    groups: list[Group] = []
    for asg, name in wanted.items():
        if asg in found:
            told = client.describe_scaling_activities(AutoScalingGroupName=asg, MaxRecords=ACTIVITIES)
            groups.append(group_of(name, found[asg], bought, told["Activities"]))
    return groups


def group_of(
    name: str, row: Mapping[str, Any], bought: Mapping[str, str], activities: Sequence[Mapping[str, Any]]
) -> Group:
    """From DescribeAutoScalingGroups' row, the nodes' lifecycles and DescribeScalingActivities' rows."""
    nodes = [
        Node(
            instance["InstanceId"],
            name,
            instance.get("InstanceType", "?"),
            instance["AvailabilityZone"],
            instance["LifecycleState"],
            bought.get(instance["InstanceId"], "on-demand"),
        )
        for instance in row["Instances"]
    ]
    return Group(
        name,
        row["AutoScalingGroupName"],
        row["DesiredCapacity"],
        row["MinSize"],
        row["MaxSize"],
        tuple(sorted(nodes, key=lambda node: node.instance_id)),
        tuple(sorted(process["ProcessName"] for process in row.get("SuspendedProcesses", []))),
        tuple(trouble for activity in activities if (trouble := trouble_of(activity)) is not None),
    )


def trouble_of(activity: Mapping[str, Any]) -> str | None:
    """A scaling activity that failed or was cancelled, in words; None for one that did not."""
    if activity.get("StatusCode") not in ("Failed", "Cancelled"):
        return None
    text = " ".join(str(activity.get("StatusMessage") or activity.get("Description") or "").split())
    meant = next((words for said, words in SAID.items() if said.lower() in text.lower()), None)
    if meant is None:
        codes = [code for code in JUDGED if code in text]
        meant = JUDGED[max(codes, key=len)][1] if codes else None
    started = activity.get("StartTime")
    when = f"{started:%Y-%m-%d %H:%M} " if started else ""
    told = text if len(text) <= 200 else f"{text[:197]}..."
    return f"{when}{meant} ({told})" if meant else f"{when}{told}"


def hourly_cost(nodes: Sequence[Node], region: str) -> tuple[float, float, list[str]]:
    """List prices of the nodes that there are, USD an hour, from the cheapest to the dearest; and the types whose
    price is not known. Capacity blocks are paid up front and cost nothing more.
    """
    low = high = 0.0
    unknown: set[str] = set()
    for node in nodes:
        if node.lifecycle == "capacity-block":
            continue
        read = spot_price if node.lifecycle == "spot" else on_demand_price
        price = read(node.instance_type, region)
        if price is None:
            unknown.add(f"{node.instance_type} {node.lifecycle}")
        else:
            low, high = low + price.low_usd, high + price.high_usd
    return low, high, sorted(unknown)


def _lifecycles(account: Account, ids: Sequence[str]) -> dict[str, str]:
    if not ids:
        return {}
    pages = (
        account.client("ec2")
        .get_paginator("describe_instances")
        .paginate(Filters=[{"Name": "instance-id", "Values": list(ids)}])
    )
    instances = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
    return {i["InstanceId"]: i.get("InstanceLifecycle") or "on-demand" for i in instances}
