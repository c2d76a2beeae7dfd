"""Sizes that change by themselves: scheduled actions, the edges of a capacity block, the steps of a fall-back."""

from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.compute.plan import LONG_AGO, GroupPlan, plan_group
from components.compute.scaling import (
    MOST_STEPS,
    ScheduledAction,
    Step,
    always,
    nodes_at_creation,
    plan_fallback_steps,
    plan_schedules,
    utc_time,
)
from components.settings import load
from components.settings.group_model import GpuGroupSettings
from tests.unit.rule_cases import IMAGE
from tests.unit.stack_files import minimal
from tests.unit.test_settings_capacity_rules import BLOCK, EVENING, ODCR
from tests.unit.test_settings_purchase_rules import with_fallback


def group(**changes: Any) -> GpuGroupSettings:
    given: dict[str, Any] = {"name": "g", "instanceTypes": ["g6.xlarge"], "maxNodes": 4, "image": IMAGE}
    return GpuGroupSettings.model_validate({**given, **changes})


def plans(config: dict[str, Any]) -> dict[str, GroupPlan]:
    settings = load("test", config)
    return {one.name: plan_group(settings, one) for one in settings.gpu_groups}


def at(text: str) -> datetime.datetime:
    return utc_time(text)


class TestSchedules:
    def test_change_what_is_written_and_leave_the_rest(self) -> None:
        assert plan_schedules(group(schedules=[EVENING]), LONG_AGO) == (
            ScheduledAction(
                name="evening",
                min_nodes=-1,  # the provider would take 0 for an absent size
                max_nodes=-1,
                desired_nodes=2,
                recurrence="0 20 * * 1-5",
                time_zone="Etc/UTC",
            ),
        )

    def test_may_set_a_size_to_zero_in_a_time_zone(self) -> None:
        night = {"name": "n", "recurrence": "0  22 * * *", "timeZone": "Europe/Berlin", "maxNodes": 0}
        (action,) = plan_schedules(group(schedules=[night]), LONG_AGO)
        assert (action.max_nodes, action.desired_nodes) == (0, -1)
        assert (action.recurrence, action.time_zone) == ("0 22 * * *", "Europe/Berlin")


class TestACapacityBlock:
    IN_BLOCK = group(reservation=BLOCK)

    def test_is_filled_at_its_start_and_empty_45_minutes_before_its_end(self) -> None:
        assert plan_schedules(self.IN_BLOCK, LONG_AGO) == (
            ScheduledAction("capacity-block-start", -1, -1, 4, start_time="2027-01-11T11:30:00Z"),
            ScheduledAction("capacity-block-end", -1, -1, 0, start_time="2027-01-18T10:45:00Z"),
        )

    @pytest.mark.parametrize(
        ("now", "left", "nodes"),
        [
            ("2027-01-11T11:09:59Z", ["capacity-block-start", "capacity-block-end"], 0),
            # A start that comes while the stack is created finds no scheduled action: the group tries from the first.
            ("2027-01-11T11:29:59Z", ["capacity-block-start", "capacity-block-end"], 4),
            ("2027-01-11T11:30:00Z", ["capacity-block-end"], 4),
            ("2027-01-18T10:44:59Z", ["capacity-block-end"], 4),
            ("2027-01-18T10:45:00Z", [], 0),
        ],
    )
    def test_has_only_edges_to_come_and_a_late_group_begins_full(
        self, now: str, left: list[str], nodes: int
    ) -> None:
        """Auto Scaling refuses a one-time action in the past, and takes one away once it was done."""
        assert [action.name for action in plan_schedules(self.IN_BLOCK, at(now))] == left
        assert nodes_at_creation(self.IN_BLOCK, at(now)) == nodes

    @given(
        st.datetimes(datetime.datetime(2026, 1, 1), datetime.datetime(2035, 1, 1)),
        st.integers(46, 182 * 24 * 60),
    )
    def test_is_always_left_more_than_30_minutes_before_its_end(
        self, start: datetime.datetime, minutes: int
    ) -> None:
        start = start.replace(microsecond=0)
        end = start + datetime.timedelta(minutes=minutes)
        times = {"startsAt": f"{start.isoformat()}Z", "endsAt": f"{end.isoformat()}Z"}
        out, home = plan_schedules(group(reservation={**BLOCK, **times}), LONG_AGO)
        assert out.start_time is not None and home.start_time is not None
        assert at(out.start_time).replace(tzinfo=None) == start
        assert end - at(home.start_time).replace(tzinfo=None) > datetime.timedelta(minutes=30)
        assert out.start_time < home.start_time

    def test_stands_beside_schedules_of_the_groups_own(self) -> None:
        found = plan_schedules(group(reservation=BLOCK, schedules=[EVENING]), LONG_AGO)
        assert [action.name for action in found] == ["evening", "capacity-block-start", "capacity-block-end"]

    def test_is_not_an_on_demand_reservation(self) -> None:
        reserved = group(reservation=ODCR, minNodes=1)
        assert plan_schedules(reserved, LONG_AGO) == () and nodes_at_creation(reserved, LONG_AGO) == 1


def nodes_for(steps: tuple[Step, ...], lacking: float) -> int:
    """What Auto Scaling would do: the step whose range, lower end included, has the value."""
    (step,) = [
        step
        for step in steps
        if (step.lower is None or step.lower <= lacking) and (step.upper is None or lacking < step.upper)
    ]
    return step.nodes


sizes = st.tuples(st.integers(1, 200), st.integers(0, 50), st.integers(1, 200)).map(
    lambda drawn: (drawn[0], drawn[1], drawn[1] + drawn[2])
)


class TestTheStepsOfAFallBack:
    def test_of_a_small_group_are_one_for_each_node_that_is_lacking(self) -> None:
        assert plan_fallback_steps(3, 0, 4) == (
            Step(0.0, 0.5, 0),
            Step(0.5, 1.5, 1),
            Step(1.5, 2.5, 2),
            Step(2.5, None, 3),
        )

    def test_begin_at_the_groups_least_size_and_end_at_its_largest(self) -> None:
        assert [step.nodes for step in plan_fallback_steps(8, 2, 5)] == [2, 3, 4, 5]

    def test_of_a_large_group_are_twenty_that_round_up(self) -> None:
        steps = plan_fallback_steps(64, 0, 64)
        assert len(steps) == 17 and steps[1] == Step(0.5, 4.5, 4) and steps[-1] == Step(60.5, None, 64)

    @given(sizes)
    def test_cover_every_shortage_once_with_twenty_steps_at_most(self, drawn: tuple[int, int, int]) -> None:
        steps = plan_fallback_steps(*drawn)
        assert 1 <= len(steps) <= MOST_STEPS
        assert steps[0].lower == 0 and steps[-1].upper is None
        assert all(one.upper == two.lower for one, two in pairwise(steps))
        assert all(step.upper is None or step.lower is None or step.lower < step.upper for step in steps)

    @given(sizes, st.data())
    def test_never_give_less_than_is_lacking_nor_more_than_the_group_may_have(
        self, drawn: tuple[int, int, int], data: st.DataObject
    ) -> None:
        most, least_nodes, most_nodes = drawn
        steps = plan_fallback_steps(*drawn)
        lacking = data.draw(st.integers(1, most))
        wanted = min(most_nodes, least_nodes + lacking)
        nodes = nodes_for(steps, lacking)
        assert wanted <= nodes <= most_nodes
        if min(most, most_nodes - least_nodes) < MOST_STEPS:
            assert nodes == wanted
        assert nodes <= wanted + min(most, most_nodes - least_nodes) // (MOST_STEPS - 1)
        assert nodes_for(steps, lacking + 1) >= nodes  # more is lacking, never fewer nodes

    @given(sizes, st.floats(0.01, 300))
    def test_take_an_average_as_the_nearest_whole_number(
        self, drawn: tuple[int, int, int], lacking: float
    ) -> None:
        steps = plan_fallback_steps(*drawn)
        assert nodes_for(steps, lacking) == nodes_for(steps, int(lacking + 0.5))

    @given(sizes)
    def test_are_the_groups_least_size_while_the_alarm_outlasts_the_shortage(
        self, drawn: tuple[int, int, int]
    ) -> None:
        assert nodes_for(plan_fallback_steps(*drawn), 0.0) == drawn[1]

    @given(st.integers(0, 100), st.floats(-100, 100))
    def test_of_a_fixed_size_have_it_at_any_value(self, nodes: int, value: float) -> None:
        assert nodes_for(always(nodes), value) == nodes
        assert all((step.lower, step.upper) != (None, None) for step in always(nodes))  # AWS refuses that


class TestWhoFallsBackToWhom:
    def test_the_on_demand_group_has_the_steps_and_the_spot_group_its_name(self) -> None:
        config = minimal()
        config["gpuGroups"] = with_fallback({"maxNodes": 8}, maxNodes=3)["gpuGroups",]
        found = plans(config)
        assert found["trainers"].fallback_group == "on-demand" and found["trainers"].fallback_steps == ()
        assert [step.nodes for step in found["on-demand"].fallback_steps] == [0, 1, 2, 3]

    def test_a_mixed_group_falls_back_to_nobody(self) -> None:
        found = plans(
            {**minimal(), "gpuGroups": [{**minimal()["gpuGroups"][0], "purchase": {"spotPercent": 50}}]}
        )
        assert found["trainers"].fallback_group is None and not found["trainers"].fallback_steps


def test_a_group_is_created_with_its_desired_or_its_least_size() -> None:
    assert nodes_at_creation(group(minNodes=1), LONG_AGO) == 1
    assert nodes_at_creation(group(minNodes=1, desiredNodes=3), LONG_AGO) == 3
    assert nodes_at_creation(group(desiredNodes=0), LONG_AGO) == 0
