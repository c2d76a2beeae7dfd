"""Plans of GPU groups: EFA by choice, purchase, and what one group is made of."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import INSTANCE_TYPES
from components.compute.plan import (
    MixedInstances,
    plan_group,
    plan_purchase,
    uses_efa,
)
from components.settings import load
from components.settings.group_model import Purchase
from tests.unit.stack_files import ROOT, minimal


class TestEfaByChoice:
    def test_auto_is_on_in_one_zone_when_every_type_has_it(self) -> None:
        with_efa, without = INSTANCE_TYPES["g6.12xlarge"], INSTANCE_TYPES["g6.xlarge"]
        assert uses_efa("auto", [with_efa], ["us-east-1a"])
        assert not uses_efa("auto", [with_efa], ["us-east-1a", "us-east-1b"])
        assert not uses_efa("auto", [with_efa, without], ["us-east-1a"])

    @pytest.mark.parametrize("choice", ["on", "off"])
    def test_a_choice_is_followed(self, choice: str) -> None:
        assert uses_efa(choice, [INSTANCE_TYPES["g6.12xlarge"]], ["us-east-1a"]) == (choice == "on")


class TestPurchase:
    def test_one_type_without_spot_needs_no_policy(self) -> None:
        assert plan_purchase(["g6.xlarge"], Purchase(on_demand_base=2)) is None

    def test_a_spot_share_above_an_on_demand_base(self) -> None:
        purchase = Purchase(on_demand_base=2, spot_percent=75, max_price_usd_per_hour=4.6)
        assert plan_purchase(["g6.12xlarge"], purchase) == MixedInstances(
            instance_types=("g6.12xlarge",),
            on_demand_base_nodes=2,
            on_demand_percent_above_base=25,
            spot_allocation_strategy="price-capacity-optimized",
            spot_max_price_usd_per_hour="4.6",
        )

    def test_several_types_need_a_policy_also_on_demand(self) -> None:
        mixed = plan_purchase(["g6.xlarge", "g6.12xlarge"], Purchase())
        assert mixed is not None and mixed.on_demand_percent_above_base == 100
        assert mixed.instance_types == ("g6.xlarge", "g6.12xlarge")

    @given(st.floats(0.0001, 1000.0))
    def test_a_price_is_decimal_text(self, price: float) -> None:
        mixed = plan_purchase(["g6.xlarge"], Purchase(spot_percent=1, max_price_usd_per_hour=price))
        assert mixed is not None and mixed.spot_max_price_usd_per_hour is not None
        assert float(mixed.spot_max_price_usd_per_hour) == price
        assert "e" not in mixed.spot_max_price_usd_per_hour


class TestAGroup:
    def plan(self, **changes: Any) -> Any:
        config = minimal()
        config["tags"] = {"team": "vision"}
        config["gpuGroups"][0].update(changes)
        settings = load("test", config)
        return plan_group(settings, settings.gpu_groups[0])

    def test_the_defaults_are_an_empty_on_demand_group_over_all_zones(self) -> None:
        plan = self.plan()
        assert (plan.min_nodes, plan.desired_nodes, plan.max_nodes) == (0, 0, 2)
        assert (
            plan.zones == ("us-east-1a", "us-east-1b") and not plan.buys_spot and not plan.cluster_placement
        )
        assert plan.auto_scaling_group == "gputrain-test-trainers"

    def test_desired_nodes_follow_the_minimum_unless_they_are_given(self) -> None:
        assert self.plan(minNodes=1).desired_nodes == 1
        assert self.plan(desiredNodes=2).desired_nodes == 2

    def test_the_root_device_is_the_image_profiles(self) -> None:
        assert self.plan().root_device_name == "/dev/sda1"

    def test_an_image_parameter_is_resolved_by_ec2_at_launch(self) -> None:
        image = {"profile": "dlami-pytorch-ubuntu-24.04", "ssmParameter": "/images/pytorch"}
        assert self.plan(image=image).image_id == "resolve:ssm:/images/pytorch"

    def test_nodes_carry_the_stacks_tags_and_their_groups(self) -> None:
        assert self.plan().tags == {
            "team": "vision",
            "gpu-training:stack": "gputrain-test",
            "gpu-training:group": "trainers",
            "Name": "gputrain-test-trainers",
        }

    def test_efas_are_counted_from_the_interfaces(self) -> None:
        assert self.plan(instanceTypes=["p5.48xlarge"], zones=["us-east-1a"]).efa_count == 32
        assert self.plan().efa_count == 0


def test_plans_import_no_pulumi() -> None:
    modules = "components.network.plan, components.compute.plan, components.bootstrap.boot_plan"
    code = f"import sys, {modules}; sys.exit('pulumi' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
