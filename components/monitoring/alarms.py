"""The CloudWatch alarms of a group, as plain values.

Group metrics arrive once a minute while the group has metrics collection enabled. A node counts as in service only
after its self-check, so that every limit here is longer than a boot.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

NAMESPACE = "GpuTraining"  # the agent's and user data's own counts
RUNBOOK = "See docs/runbooks.md#"


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
    metrics: dict[str, str] = field(
        default_factory=dict
    )  # id -> metric of AWS/AutoScaling, for the expression
    expression: str | None = None  # more than zero is too much


def group_alarms(auto_scaling_group: str, *, buys_spot: bool) -> list[Alarm]:
    """What can be wrong with a group. The order is stable."""
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
    return alarms


_SHORTFALL: dict[str, Any] = {
    "metrics": {"desired": "GroupDesiredCapacity", "in_service": "GroupInServiceInstances"},
    "expression": "desired - in_service",
}


def dashboard_body(*, region: str, auto_scaling_groups: list[str]) -> dict[str, Any]:
    """A CloudWatch dashboard: a row a group with its nodes and its failures."""
    widgets = []
    for row, group in enumerate(auto_scaling_groups):
        dimension = ["AutoScalingGroupName", group]
        nodes = [["AWS/AutoScaling", metric, *dimension] for metric in _SHORTFALL["metrics"].values()]
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
