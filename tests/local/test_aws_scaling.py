"""What an Auto Scaling group decides: purchases, scale-in, lifecycle actions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localcloud.aws.scaling import (
    LAUNCHING,
    TERMINATING,
    Member,
    after_wait,
    begin_wait,
    emptiest_subnet,
    next_purchases,
    on_demand_wanted,
    pool_purchases,
    pool_surplus,
    pool_wanted,
    scale_in_choice,
    taken_from_pool,
)


def member(
    number: int,
    state: str = "InService",
    spot: bool = False,
    subnet: str = "a",
    version: int = 1,
    protected: bool = False,
) -> Member:
    return Member(f"i-{number}", state, spot, subnet, version, float(number), protected)


@pytest.mark.parametrize(
    ("desired", "base", "percent", "on_demand"),
    [
        (0, 1, 0, 0),
        (1, 2, 0, 1),  # all of it base
        (2, 1, 0, 1),
        (4, 0, 0, 0),
        (4, 0, 100, 4),
        (4, 1, 50, 3),  # 1 + 1.5 rounded up: AWS rounds in favour of on demand
    ],
)
def test_on_demand_base_first_then_the_percentage(
    desired: int, base: int, percent: int, on_demand: int
) -> None:
    assert on_demand_wanted(desired, base, percent) == on_demand


members_strategy = st.lists(
    st.builds(
        member,
        st.integers(0, 999),
        st.sampled_from(["Pending:Wait", "InService", "Terminating:Wait"]),
        st.booleans(),
        st.sampled_from("abc"),
        st.integers(1, 3),
        st.booleans(),
    ),
    max_size=12,
    unique_by=lambda m: m.instance_id,
)


@given(members_strategy, st.integers(0, 10), st.integers(0, 3), st.integers(0, 100))
def test_a_step_brings_the_group_to_its_size_and_never_beyond(
    members: list[Member], desired: int, base: int, percent: int
) -> None:
    on_demand = on_demand_wanted(desired, base, percent)
    chosen = scale_in_choice(members, desired, on_demand)
    stay = [m for m in members if m.counted and m.instance_id not in chosen]
    protected = sum(m.protected for m in members if m.counted)
    assert len(stay) <= max(desired, protected)
    assert not [m for m in members if m.instance_id in chosen and (m.protected or not m.counted)]
    assert len(stay) + len(next_purchases(stay, desired, on_demand)) == max(desired, len(stay))
    if chosen:
        assert len(stay) >= desired


@given(st.integers(0, 10), st.integers(0, 10), st.integers(0, 100))
def test_a_new_group_gets_the_declared_mix(desired: int, base: int, percent: int) -> None:
    spots = next_purchases([], desired, on_demand_wanted(desired, base, percent))
    assert spots.count(False) == on_demand_wanted(desired, base, percent)
    assert spots == sorted(spots), "on demand comes first"


def test_a_lost_spot_instance_is_replaced_by_spot() -> None:
    assert next_purchases([member(1), member(2, "Terminating:Wait", spot=True)], 2, 1) == [True]


@pytest.mark.parametrize(
    ("members", "gone"),
    [
        ([member(1), member(2, spot=True), member(3, spot=True)], "i-2"),  # surplus is spot
        ([member(1), member(2), member(3, spot=True)], "i-1"),  # surplus is on demand
        ([member(1, subnet="a"), member(2, subnet="b"), member(3, subnet="b")], "i-2"),  # fullest zone
        ([member(1, version=2), member(2, version=1), member(3, version=2)], "i-2"),  # oldest template
        ([member(1, protected=True), member(2), member(3)], "i-2"),
    ],
)
def test_scale_in_takes(members: list[Member], gone: str) -> None:
    on_demand = 1 if any(m.spot for m in members) else 2
    assert scale_in_choice(members, 2, on_demand) == [gone]


def test_launches_spread_over_zones() -> None:
    assert emptiest_subnet(["a", "b"], [member(1, subnet="a")]) == "b"
    assert emptiest_subnet(["a", "b"], [member(1, "Terminating:Wait", subnet="a")]) == "a"


@pytest.mark.parametrize(
    ("transition", "result", "state"),
    [
        (LAUNCHING, "CONTINUE", "InService"),
        (LAUNCHING, "ABANDON", "Terminated"),
        (TERMINATING, "CONTINUE", "Terminated"),
        (TERMINATING, "ABANDON", "Terminated"),
    ],
)
def test_a_finished_lifecycle_action_leads_to(transition: str, result: str, state: str) -> None:
    wait = begin_wait("hook", transition, "token", "ABANDON", 30, now=0)
    assert after_wait(wait, result) == state


def test_a_heartbeat_prolongs_the_wait_up_to_a_hundred_heartbeats() -> None:
    wait = begin_wait("hook", LAUNCHING, "token", "ABANDON", 30, now=100)
    assert wait.deadline == 130
    assert wait.prolonged(120).deadline == 150
    assert wait.prolonged(3090).deadline == 3100


# ---- warm pools


@pytest.mark.parametrize(
    ("prepared", "minimum", "in_group", "wanted"),
    [
        (4, 0, 1, 3),  # what is missing to the prepared capacity
        (4, 2, 3, 2),  # at least the minimum
        (2, 0, 5, 0),  # a group beyond it needs no pool
    ],
)
def test_the_pools_size(prepared: int, minimum: int, in_group: int, wanted: int) -> None:
    assert pool_wanted(prepared, minimum, in_group) == wanted


def test_warm_instances_count_for_the_pool_and_not_for_the_group() -> None:
    members = [member(1), member(2, "Warmed:Stopped"), member(3, "Warmed:Pending:Wait")]
    assert next_purchases(members, desired=2, on_demand=2) == [False]
    assert pool_purchases(members, wanted=3, on_demand=4) == [False]
    assert scale_in_choice(members, desired=1, on_demand=1) == []


def test_the_pool_is_bought_as_the_group_would_be_with_it() -> None:
    assert pool_purchases([member(1)], wanted=2, on_demand=2) == [False, True]
    assert pool_purchases([member(1), member(2, "Warmed:Running")], wanted=2, on_demand=2) == [True]


def test_the_longest_ready_of_the_wanted_kind_is_taken_each_once() -> None:
    members = [
        member(1, "Warmed:Pending:Wait"),
        member(2, "Warmed:Stopped", spot=True),
        member(4, "Warmed:Running"),
        member(3, "Warmed:Stopped"),
    ]
    assert taken_from_pool(members, [False, False, False, True]) == ["i-3", "i-4", None, "i-2"]


def test_surplus_leaves_the_pool_by_the_oldest_template() -> None:
    members = [member(1, "Warmed:Stopped", version=2), member(2, "Warmed:Stopped"), member(3)]
    assert pool_surplus(members, wanted=1) == ["i-2"]
    assert pool_surplus(members, wanted=2) == []


def test_warm_instances_spread_over_the_zones_with_the_group() -> None:
    assert emptiest_subnet("ab", [member(1, "Warmed:Stopped", subnet="a")]) == "b"
