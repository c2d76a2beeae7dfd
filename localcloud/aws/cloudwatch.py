"""CloudWatch as the stack's counts and alarms need it: whole minutes, and alarms that get evaluated."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from moto.cloudwatch.models import (
    Alarm,
    CloudWatchBackend,
    MetricDatumBase,
    Statistics,
)
from moto.core.utils import utcnow

_init_datum = MetricDatumBase.__init__
_get_statistics = CloudWatchBackend.get_metric_statistics

COMPARE: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanThreshold": operator.gt,
    "GreaterThanOrEqualToThreshold": operator.ge,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


def init_datum(datum: MetricDatumBase, *args: Any, **kwargs: Any) -> None:
    """Standard-resolution metrics lie on whole minutes. moto keeps the exact time, and since it cuts EndTime
    to the second, a count that was just written would be missing from a sum up to now."""
    _init_datum(datum, *args, **kwargs)
    datum.timestamp = datum.timestamp.replace(second=0, microsecond=0)


def get_metric_statistics(
    backend: CloudWatchBackend,
    namespace: str,
    metric_name: str,
    start_time: datetime,
    end_time: datetime,
    *args: Any,
    **kwargs: Any,
) -> list[Statistics]:
    """CloudWatch rounds StartTime down to its resolution."""
    start = start_time.replace(second=0, microsecond=0)
    return _get_statistics(backend, namespace, metric_name, start, end_time, *args, **kwargs)


@dataclass(frozen=True)
class Rule:
    """A threshold on one metric, as PutMetricAlarm states it."""

    comparison: str
    threshold: float
    evaluation_periods: int
    datapoints_to_alarm: int
    missing: str  # missing | notBreaching | breaching | ignore


def judge(rule: Rule, points: Sequence[float | None], current: str) -> str:
    """The alarm's state from its last periods (None: no data in that period)."""
    compare = COMPARE[rule.comparison]
    if all(point is None for point in points) and rule.missing in ("missing", "ignore"):
        return current if rule.missing == "ignore" else "INSUFFICIENT_DATA"
    breaching = sum(
        (rule.missing == "breaching") if point is None else compare(point, rule.threshold) for point in points
    )
    return "ALARM" if breaching >= rule.datapoints_to_alarm else "OK"


def evaluate_alarms(backend: CloudWatchBackend) -> None:
    """Alarms on one plain metric; those on metric math keep the state they have."""
    now = utcnow()
    for alarm in list(backend.alarms.values()):
        if not alarm.metric_name or alarm.comparison_operator not in COMPARE or not alarm.statistic:
            continue
        rule = Rule(
            comparison=alarm.comparison_operator,
            threshold=float(alarm.threshold),
            evaluation_periods=int(alarm.evaluation_periods),
            datapoints_to_alarm=int(alarm.datapoints_to_alarm or alarm.evaluation_periods),
            missing=alarm.treat_missing_data or "missing",
        )
        points = [_point(backend, alarm, now, index) for index in range(rule.evaluation_periods)]
        state = judge(rule, points, alarm.state_value)
        if state != alarm.state_value:
            reason = f"Threshold crossed or cleared: newest period first {points}, threshold {rule.threshold}"
            alarm.update_state(reason, "{}", state)


def _point(backend: CloudWatchBackend, alarm: Alarm, now: datetime, index: int) -> float | None:
    """The statistic over one period that ends now (index 0) or earlier; periods trail the clock, so that an
    alarm shows without the wait for a full period."""
    end = now - timedelta(seconds=index * int(alarm.period))
    found = Statistics([alarm.statistic], end)
    start = (end - timedelta(seconds=int(alarm.period))).replace(second=0, microsecond=0)
    dimensions = [{"Name": d.name, "Value": d.value} for d in alarm.dimensions]
    found.metric_data = [
        datum
        for datum in backend.metric_data
        if datum.filter(alarm.namespace, alarm.metric_name, dimensions)  # type: ignore[arg-type]
        and len(datum.dimensions) == len(dimensions)
        and start <= datum.timestamp <= end
    ]
    if not found.metric_data:
        return None
    value = found.get_statistics_for_type(alarm.statistic)
    return None if value is None else float(value)
