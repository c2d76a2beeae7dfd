"""The budget as plain values, and the function that stops the groups, against an Auto Scaling API."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from components.cost import budget_stop
from components.cost.budget_plan import BudgetPlan, plan_budget
from components.settings import load
from tests.unit.stack_files import minimal

REGION = "us-east-1"


def plan(**budget: Any) -> BudgetPlan:
    budget = {"monthlyUsd": 20000.0, "emails": ["gpu@example.com"], **budget}
    found = plan_budget(load("dev", {**minimal(), "budget": budget}))
    assert found is not None
    return found


SOUND = load("dev", {**minimal(), "budget": {"monthlyUsd": 20000.0, "emails": ["gpu@example.com"]}})


class TestPlan:
    def test_no_budget_no_plan(self) -> None:
        assert plan_budget(load("dev", minimal())) is None

    def test_it_counts_what_carries_the_stacks_tag(self) -> None:
        assert plan().tag_filter == "user:gpu-training:stack$gputrain-dev"
        assert (plan().name, plan().limit_usd) == ("gputrain-dev-monthly", "20000.00")

    def test_people_are_told_before_at_and_of_what_is_to_come(self) -> None:
        told = [(one.of, one.percent, one.stops) for one in plan().notifications]
        assert told == [("ACTUAL", 80, False), ("ACTUAL", 100, False), ("FORECASTED", 100, False)]
        assert plan().stop_name is None

    @pytest.mark.parametrize(
        ("percent", "thresholds"),
        [(90, [80, 90, 100]), (100, [80, 100]), (80, [80, 100]), (120, [80, 100, 120])],
    )
    def test_a_stop_is_told_to_people_too_and_no_threshold_is_there_twice(
        self, percent: int, thresholds: list[int]
    ) -> None:
        found = plan(stopAtPercent=percent)
        actual = [one for one in found.notifications if one.of == "ACTUAL"]
        assert [one.percent for one in actual] == thresholds
        [stop] = [one for one in actual if one.stops]
        assert stop.percent == percent
        assert found.stop_name == "gputrain-dev-budget-stop"

    @given(percent=st.integers(1, 1000))
    def test_aws_takes_the_notifications_whatever_the_stop(self, percent: int) -> None:
        """At most five a budget (AWS quotas), none twice."""
        assert SOUND.budget is not None
        budget = SOUND.budget.model_copy(update={"stop_at_percent": percent})
        changed = plan_budget(SOUND.model_copy(update={"budget": budget}))
        found = changed.notifications if changed else ()
        assert len({(one.of, one.percent) for one in found}) == len(found) <= 5
        assert [one.percent for one in found if one.stops] == [percent]

    def test_every_group_is_stopped(self) -> None:
        one = minimal()["gpuGroups"][0]
        groups = [{**one, "minNodes": 1}, {**one, "name": "others"}]
        budget = {"monthlyUsd": 20000.0, "emails": ["gpu@example.com"], "stopAtPercent": 100}
        found = plan_budget(load("dev", {**minimal(), "gpuGroups": groups, "budget": budget}))
        assert found is not None and found.groups == {"gputrain-dev-trainers": 1, "gputrain-dev-others": 0}


MESSAGE = {
    "Records": [{"Sns": {"Subject": "AWS Budgets: gputrain-dev-monthly has exceeded your alert threshold"}}]
}


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Three groups with nodes, of which the function is told two."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("GROUPS", json.dumps({"dev-a": 1, "dev-b": 0}))
    with mock_aws():
        client = boto3.client("autoscaling")
        client.create_launch_configuration(
            LaunchConfigurationName="any", ImageId="ami-0123456789abcdef0", InstanceType="g6.xlarge"
        )
        for name in ("dev-a", "dev-b", "other"):
            client.create_auto_scaling_group(
                AutoScalingGroupName=name,
                LaunchConfigurationName="any",
                MinSize=1,
                MaxSize=4,
                DesiredCapacity=2,
                AvailabilityZones=[f"{REGION}a"],
            )
        yield client


def state(client: Any, name: str) -> tuple[int, int, int, list[str]]:
    [group] = client.describe_auto_scaling_groups(AutoScalingGroupNames=[name])["AutoScalingGroups"]
    suspended = [process["ProcessName"] for process in group["SuspendedProcesses"]]
    return group["MinSize"], group["DesiredCapacity"], group["MaxSize"], suspended


class Refusing:
    """An Auto Scaling client that is not let do some calls on one group."""

    def __init__(self, client: Any, group: str, refused: set[str]) -> None:
        self._client, self._group, self._refused = client, group, refused

    def __getattr__(self, name: str) -> Any:
        def call(**asked: Any) -> Any:
            if name in self._refused and asked["AutoScalingGroupName"] == self._group:
                raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, name)
            return getattr(self._client, name)(**asked)

        return call


class TestStop:
    def test_sets_its_groups_to_zero_and_suspends_their_launches(self, groups: Any) -> None:
        assert budget_stop.handler(MESSAGE, None) == {"stopped": ["dev-a", "dev-b"]}
        assert state(groups, "dev-a") == state(groups, "dev-b") == (0, 0, 4, ["Launch"])
        assert state(groups, "other") == (1, 2, 4, [])

    def test_done_twice_it_is_the_same(self, groups: Any) -> None:
        budget_stop.handler(MESSAGE, None)
        before = state(groups, "dev-a")
        budget_stop.handler(MESSAGE, None)
        assert state(groups, "dev-a") == before

    @pytest.mark.parametrize(
        ("refused", "left"),
        [
            ({"suspend_processes", "update_auto_scaling_group"}, (1, 2, 4, [])),
            ({"suspend_processes"}, (0, 0, 4, [])),
            ({"update_auto_scaling_group"}, (1, 2, 4, ["Launch"])),
        ],
    )
    def test_what_is_refused_keeps_nothing_else_from_being_done_and_fails_the_run(
        self, groups: Any, monkeypatch: pytest.MonkeyPatch, refused: set[str], left: Any
    ) -> None:
        monkeypatch.setattr(budget_stop.boto3, "client", lambda _: Refusing(groups, "dev-a", refused))
        with pytest.raises(budget_stop.NotAllStopped, match=r"still running: dev-a$"):
            budget_stop.handler(MESSAGE, None)
        assert state(groups, "dev-a") == left
        assert state(groups, "dev-b") == (0, 0, 4, ["Launch"])

    def test_the_log_has_the_commands_that_undo_it(
        self, groups: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO):
            budget_stop.handler(MESSAGE, None)
        assert "gputrain-dev-monthly has exceeded" in caplog.text
        assert (
            "aws autoscaling resume-processes --auto-scaling-group-name dev-a --scaling-processes Launch && "
            "aws autoscaling update-auto-scaling-group --auto-scaling-group-name dev-a --min-size 1"
        ) in caplog.text
