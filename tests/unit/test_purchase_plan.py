"""How groups are bought: reservations, rebalancing, templates by layout, and refresh one node at a time."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.compute.plan import GroupPlan, manual_rollouts, plan_group
from components.compute.purchase import (
    ReservedCapacity,
    least_healthy_percent,
    plan_rebalance,
    plan_reservation,
)
from components.settings import load
from components.settings.group_model import Purchase, Reservation
from tests.unit.stack_files import minimal
from tests.unit.test_settings_capacity_rules import BLOCK, ODCR


def plan(**changes: Any) -> GroupPlan:
    config = minimal()
    config["gpuGroups"][0].update(changes)
    settings = load("test", config)
    return plan_group(settings, settings.gpu_groups[0])


class TestRebalancing:
    @pytest.mark.parametrize(
        ("spot_percent", "efa", "on"),
        [(0, False, False), (0, True, False), (1, False, True), (100, False, True), (100, True, False)],
    )
    def test_is_on_for_spot_without_efa(self, spot_percent: int, efa: bool, on: bool) -> None:
        assert plan_rebalance(Purchase(spot_percent=spot_percent), efa) == on

    @given(st.integers(0, 100), st.booleans(), st.booleans())
    def test_follows_what_is_written(self, spot_percent: int, efa: bool, wanted: bool) -> None:
        purchase = Purchase(spot_percent=spot_percent, capacity_rebalance=wanted)
        assert plan_rebalance(purchase, efa) == wanted


class TestAReservation:
    def test_of_a_capacity_block_has_the_market_type_and_the_id(self) -> None:
        """terraform-provider-aws#38579: a launch with one of them alone is refused."""
        found = plan_reservation(Reservation.model_validate(BLOCK))
        assert found == ReservedCapacity("cr-0123456789abcdef0", "capacity-block")

    def test_on_demand_has_no_market_type(self) -> None:
        assert plan_reservation(Reservation.model_validate(ODCR)) == ReservedCapacity(
            "cr-0123456789abcdef0", None
        )
        assert plan_reservation(None) is None

    def test_is_bought_by_the_template_and_not_by_a_mixed_policy(self) -> None:
        """kops#10104: a template with a market type is refused beside a mixed-instances policy."""
        block = plan(instanceTypes=["p5en.48xlarge"], zones=["us-east-1a"], reservation=BLOCK)
        assert block.mixed_instances is None and block.reservation is not None


class TestARefresh:
    @given(st.integers(1, 2000), st.data())
    def test_never_lets_two_nodes_leave_at_once(self, max_nodes: int, data: st.DataObject) -> None:
        """Whatever the group's size is at the time, and however Auto Scaling rounds the nodes it keeps."""
        nodes = data.draw(st.integers(1, max_nodes))
        kept = nodes * least_healthy_percent(max_nodes) / 100
        assert nodes - math.floor(kept) <= 1

    @pytest.mark.parametrize(
        ("max_nodes", "percent"),
        [(1, 0), (2, 50), (3, 67), (4, 75), (8, 88), (64, 99), (100, 99), (500, 100)],
    )
    def test_keeps_all_but_one(self, max_nodes: int, percent: int) -> None:
        assert least_healthy_percent(max_nodes) == percent

    @given(st.integers(1, 2000))
    def test_is_a_percentage(self, max_nodes: int) -> None:
        assert 0 <= least_healthy_percent(max_nodes) <= 100


class TestTemplates:
    def test_types_of_one_layout_share_theirs(self) -> None:
        found = plan(instanceTypes=["g6.12xlarge", "g6.24xlarge"], zones=["us-east-1a"])
        assert [layout.instance_types for layout in found.layouts] == [("g6.12xlarge", "g6.24xlarge")]

    def test_types_of_other_interfaces_have_their_own_and_the_promise_is_the_least(self) -> None:
        found = plan(instanceTypes=["g6e.12xlarge", "g6e.24xlarge"], zones=["us-east-1a"])
        assert [layout.instance_types for layout in found.layouts] == [("g6e.12xlarge",), ("g6e.24xlarge",)]
        counts = [sum(i.interface_type != "interface" for i in layout.interfaces) for layout in found.layouts]
        assert counts == [1, 2] and found.efa_count == 1

    def test_without_efa_all_types_have_one_plain_interface(self) -> None:
        found = plan(instanceTypes=["g6e.12xlarge", "g6e.24xlarge"], efa="off")
        assert len(found.layouts) == 1 and found.efa_count == 0


class TestPlacement:
    @pytest.mark.parametrize(
        ("placement", "own", "id_"),
        [
            ("none", False, None),
            ("cluster", True, None),
            ("pg-0123456789abcdef0", False, "pg-0123456789abcdef0"),
        ],
    )
    def test_is_an_own_group_one_that_exists_or_none(
        self, placement: str, own: bool, id_: str | None
    ) -> None:
        found = plan(placement=placement, zones=["us-east-1a"])
        assert (found.cluster_placement, found.placement_group_id) == (own, id_)

    def test_and_efa_are_two_choices(self) -> None:
        """terraform-aws-eks PR 2959."""
        efa = {"instanceTypes": ["p4d.24xlarge"], "zones": ["us-east-1a"]}
        without = plan(**efa)
        assert without.efa_count == 4 and not without.cluster_placement
        close = plan(zones=["us-east-1a"], efa="off", placement="cluster")
        assert close.efa_count == 0 and close.cluster_placement


def test_preview_names_the_groups_whose_running_nodes_keep_their_template() -> None:
    manual, refresh = plan(), plan(rollout="refresh")
    line = manual_rollouts([manual, refresh])
    assert line is not None and line.startswith("rollout: manual in trainers: ") and "next boot" in line
    assert manual_rollouts([refresh]) is None
