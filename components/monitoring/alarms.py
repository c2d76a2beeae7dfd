"""The CloudWatch alarms of a group, as plain values.

Group metrics arrive once a minute while the group has metrics collection enabled. A node counts as in service only
after its self-check, so that a limit on missing nodes is longer than most boots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

NAMESPACE = "GpuTraining"  # the agent's and user data's own counts
NODES_TRAINING = "NodesTraining"  # 1 a minute of each node that trains, 0 of each other
# Several counts of a node lie in each period. At a minute, every few hours one has none: a node counts a little more
# rarely than once a minute, and a stop after a day would never come.
IDLE_PERIOD_SECONDS = 300
RUNBOOK = "See docs/runbooks.md#"


@dataclass(frozen=True)
class Metric:
    """A metric with a group as its dimension, under the id that the expression uses."""

    id: str
    name: str
    namespace: str = "AWS/AutoScaling"
    statistic: str = "Average"
    of: str | None = None  # the Auto Scaling group; None: the alarm's own


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
    metrics: tuple[Metric, ...] = ()  # for the expression
    expression: str | None = None  # more than zero is too much
    label: str = ""  # what the expression counts
    end_is_told: bool = True


def group_alarms(
    auto_scaling_group: str,
    *,
    buys_spot: bool,
    idle_stop_minutes: int | None = None,
    fallback_group: str | None = None,
) -> list[Alarm]:
    """What can be wrong with a group, and that nobody uses it. The order is stable.

    ``fallback_group`` is the Auto Scaling group whose nodes train in the place of this one's: both are idle, or none.
    """
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
        groups = [auto_scaling_group, *([fallback_group] if fallback_group else [])]
        alarms.append(_idle(groups, idle_stop_minutes))
    return alarms


def _idle(groups: Sequence[str], minutes: int) -> Alarm:
    """Nodes are in service, none boots, and none trains: a run that waits for a node that is on its way is not idle.

    SUM and MAX of a list leave out what has no data, such as the counts of a group without nodes. Where nobody counts,
    the expression has no data, which says nothing about training and stops nobody.
    """
    metrics: list[Metric] = []
    for place, group in enumerate(groups):
        metrics += [
            # The least of a period: a node that came within it has not been idle for all of it.
            Metric(f"in_service{place}", "GroupInServiceInstances", statistic="Minimum", of=group),
            Metric(f"pending{place}", "GroupPendingInstances", statistic="Maximum", of=group),
            Metric(f"training{place}", NODES_TRAINING, NAMESPACE, "Maximum", of=group),
        ]
    ids = [metric.id for metric in metrics]
    in_service, pending = _over("SUM", ids[0::3]), _over("SUM", ids[1::3])
    training = _over("MAX", ids[2::3])
    periods = -(-minutes * 60 // IDLE_PERIOD_SECONDS)
    return Alarm(
        role="idle",
        description=f"No node of {' and '.join(groups)} trained for {minutes} minutes: scaled in.",
        treat_missing_data="notBreaching",
        evaluation_periods=periods,
        datapoints_to_alarm=periods,
        period_seconds=IDLE_PERIOD_SECONDS,
        metrics=tuple(metrics),
        expression=f"IF({in_service} > 0 AND {pending} < 1 AND {training} < 1, 1, 0)",
        label="idle",
        end_is_told=False,  # there are no nodes any more
    )


def _over(function: str, ids: Sequence[str]) -> str:
    """The function over the groups; of one group its metric itself, since of a single series it is one number."""
    return ids[0] if len(ids) == 1 else f"{function}([{', '.join(ids)}])"


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
