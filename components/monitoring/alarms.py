"""The CloudWatch alarms of a group, as plain values.

Group metrics arrive once a minute while the group has metrics collection enabled. A node counts as in service only
after its self-check, so that every limit here is longer than a boot.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

NAMESPACE = "GpuTraining"  # the agent's and user data's own counts
NODES_TRAINING = "NodesTraining"  # 1 a minute of each node that trains, 0 of each other
RUNBOOK = "See docs/runbooks.md#"


@dataclass(frozen=True)
class Metric:
    """A metric with the group as its dimension, under the id that the expression uses."""

    id: str
    name: str
    namespace: str = "AWS/AutoScaling"
    statistic: str = "Average"


@dataclass(frozen=True)
class Alarm:
    """`role` ends the alarm's name and is the anchor of its run-book entry."""

    role: str
    description: str
    treat_missing_data: str
    evaluation_periods: int
    datapoints_to_alarm: int
    period_seconds: int
    event: str | None = None  # a count of NAMESPACE of which one is too many
    metrics: tuple[Metric, ...] = ()  # of the group, for the expression
    expression: str | None = None  # more than zero is too much
    label: str = ""  # what the expression counts
    end_is_told: bool = True


def group_alarms(
    auto_scaling_group: str, *, buys_spot: bool, idle_stop_minutes: int | None = None
) -> list[Alarm]:
    """What can be wrong with a group, and that nobody uses it. The order is stable."""
    alarms = [
        Alarm(
            role="node-missing",
            description=f"{auto_scaling_group} had fewer nodes in service than desired for 15 minutes.",
            treat_missing_data="breaching",  # no count at all: the group or its metrics are gone
            evaluation_periods=15,
            datapoints_to_alarm=15,
            period_seconds=60,
            **_SHORTFALL,
        ),
        Alarm(
            role="self-check-failed",
            description=f"A node of {auto_scaling_group} failed to boot or to pass its self-check.",
            treat_missing_data="notBreaching",
            evaluation_periods=1,
            datapoints_to_alarm=1,
            period_seconds=300,
            event="SelfCheckFailed",
        ),
        Alarm(
            role="launches-suspended",
            # Twelve periods: the alarm stays visible for an hour; only a person resumes launches.
            description=f"Too many nodes of {auto_scaling_group} failed within an hour; it launches no more. Resume: "
            f"aws autoscaling resume-processes --auto-scaling-group-name {auto_scaling_group} "
            "--scaling-processes Launch",
            treat_missing_data="notBreaching",
            evaluation_periods=12,
            datapoints_to_alarm=1,
            period_seconds=300,
            event="LaunchesSuspended",
        ),
    ]
    if buys_spot:
        alarms.append(
            Alarm(
                role="spot-short",
                description=f"{auto_scaling_group} lacked nodes for 45 minutes of an hour: spot capacity is short.",
                treat_missing_data="notBreaching",
                evaluation_periods=12,
                datapoints_to_alarm=9,
                period_seconds=300,
                **_SHORTFALL,
            )
        )
    if idle_stop_minutes is not None:
        alarms.append(
            Alarm(
                role="idle",
                description=f"No node of {auto_scaling_group} trained for {idle_stop_minutes} minutes: it is scaled "
                "to zero.",
                # A count that does not arrive says nothing about training, and stops nobody.
                treat_missing_data="notBreaching",
                evaluation_periods=idle_stop_minutes,
                datapoints_to_alarm=idle_stop_minutes,
                period_seconds=60,
                metrics=(
                    _IN_SERVICE,
                    Metric("training", NODES_TRAINING, namespace=NAMESPACE, statistic="Maximum"),
                ),
                expression="IF(in_service > 0 AND training < 1, 1, 0)",
                label="idle",
                end_is_told=False,  # there are no nodes any more
            )
        )
    return alarms


_IN_SERVICE = Metric("in_service", "GroupInServiceInstances")
_DESIRED = Metric("desired", "GroupDesiredCapacity")
_SHORTFALL: dict[str, Any] = {
    "metrics": (_DESIRED, _IN_SERVICE),
    "expression": "desired - in_service",
    "label": "nodes short",
}


def dashboard_body(*, region: str, auto_scaling_groups: list[str]) -> dict[str, Any]:
    """A CloudWatch dashboard: a row a group with its nodes and its failures."""
    widgets = []
    for row, group in enumerate(auto_scaling_groups):
        dimension = ["AutoScalingGroupName", group]
        nodes = [["AWS/AutoScaling", metric.name, *dimension] for metric in (_DESIRED, _IN_SERVICE)]
        failures = [[NAMESPACE, metric, *dimension] for metric in ("SelfCheckFailed", "LaunchesSuspended")]
        for column, (title, metrics, stat) in enumerate(
            [("nodes", nodes, "Average"), ("failures", failures, "Sum")]
        ):
            widgets.append(
                {
                    "type": "metric",
                    "x": 12 * column,
                    "y": 6 * row,
                    "width": 12,
                    "height": 6,
                    "properties": {
                        "title": f"{group}: {title}",
                        "region": region,
                        "view": "timeSeries",
                        "stat": stat,
                        "period": 60,
                        "metrics": metrics,
                        "yAxis": {"left": {"min": 0}},
                    },
                }
            )
    return {"widgets": widgets}
