"""CloudWatch of the local cloud: a count is seen at once, and alarms follow their counts."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from localcloud.aws.cloudwatch import Rule, judge
from localcloud.aws.server import AwsServer
from tests.local.cloud_kit import client, wait_until

GROUP = [{"Name": "AutoScalingGroupName", "Value": "group"}]


@pytest.fixture
def cloudwatch() -> Any:
    with AwsServer() as server:
        yield client("cloudwatch", server.endpoint)


def count(cloudwatch: Any, name: str) -> None:
    datum = {"MetricName": name, "Value": 1, "Unit": "Count", "Dimensions": GROUP}
    cloudwatch.put_metric_data(Namespace="GpuTraining", MetricData=[datum])


def sum_of_the_hour(cloudwatch: Any, dimensions: list[dict[str, str]]) -> float:
    now = datetime.now(timezone.utc)
    found = cloudwatch.get_metric_statistics(
        Namespace="GpuTraining", MetricName="SelfCheckFailed", Dimensions=dimensions, Statistics=["Sum"],
        Period=60, StartTime=now - timedelta(hours=1), EndTime=now,
    )  # fmt: skip
    return sum(point["Sum"] for point in found["Datapoints"])


def test_the_sum_of_the_hour_holds_the_count_just_written(cloudwatch: Any) -> None:
    for expected in (1, 2, 3):
        count(cloudwatch, "SelfCheckFailed")
        assert sum_of_the_hour(cloudwatch, GROUP) == expected
    other = [{"Name": "AutoScalingGroupName", "Value": "other"}]
    assert sum_of_the_hour(cloudwatch, other) == 0


def test_an_alarm_follows_its_count(cloudwatch: Any) -> None:
    cloudwatch.put_metric_alarm(
        AlarmName="suspended", Namespace="GpuTraining", MetricName="LaunchesSuspended", Dimensions=GROUP,
        Statistic="Sum", Period=300, EvaluationPeriods=1, Threshold=0, ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="notBreaching",
    )  # fmt: skip

    def state() -> str:
        return cloudwatch.describe_alarms(AlarmNames=["suspended"])["MetricAlarms"][0]["StateValue"]

    assert state() == "OK"
    count(cloudwatch, "LaunchesSuspended")
    wait_until(lambda: state() == "ALARM", "the alarm")


@pytest.mark.parametrize(
    ("points", "missing", "datapoints", "state"),
    [
        ([2.0], "missing", 1, "ALARM"),
        ([1.0], "missing", 1, "OK"),  # greater than, not equal
        ([None], "missing", 1, "INSUFFICIENT_DATA"),
        ([None], "notBreaching", 1, "OK"),
        ([None], "breaching", 1, "ALARM"),
        ([None], "ignore", 1, "OK"),  # as it was
        ([2.0, None, 2.0], "notBreaching", 2, "ALARM"),
        ([2.0, None, 0.0], "notBreaching", 2, "OK"),
    ],
)
def test_judging(points: list[float | None], missing: str, datapoints: int, state: str) -> None:
    rule = Rule("GreaterThanThreshold", 1.0, len(points), datapoints, missing)
    assert judge(rule, points, current="OK") == state
