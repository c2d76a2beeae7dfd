"""Plans of GPU groups: interfaces by instance type, purchase, and what EC2 or Auto Scaling would refuse."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import INSTANCE_TYPES, NetworkInterface
from components.compute.interfaces import layout_faults, plan_interfaces
from components.compute.plan import (
    MixedInstances,
    plan_group,
    plan_purchase,
    uses_efa,
)
from components.settings import load
from components.settings.group_model import Purchase
from tests.unit.stack_files import ROOT, minimal

# Cards that carry EFA beside the plain interface on card 0, device 0: EC2 user guide, efa-acc-inst-types
# (2026).
EFA_CARDS = {
    "g6.12xlarge": [0],
    "g6e.48xlarge": range(4),
    "p4d.24xlarge": range(4),
    "p5.48xlarge": range(32),
    "p6-b300.48xlarge": range(1, 17),  # 17 cards, and card 0 carries none
}
PLAIN = NetworkInterface(0, 0, "interface")
names_with_efa = st.sampled_from(sorted(EFA_CARDS))
all_types = st.sampled_from(sorted(INSTANCE_TYPES.values(), key=lambda type_: type_.name))


class TestInterfaces:
    @pytest.mark.parametrize("name", EFA_CARDS)
    def test_an_efa_node_has_one_address_and_one_efa_a_card(self, name: str) -> None:
        # The device index counts on each card: 1 beside the plain interface, 0 where EFA is alone.
        expected = [PLAIN] + [
            NetworkInterface(card, 1 if card == 0 else 0, "efa-only") for card in EFA_CARDS[name]
        ]
        assert list(plan_interfaces([INSTANCE_TYPES[name]], efa=True)) == expected

    @given(all_types)
    def test_without_efa_every_type_has_one_plain_interface(self, type_: Any) -> None:
        assert plan_interfaces([type_], efa=False) == (PLAIN,)

    def test_every_type_of_the_catalog_is_in_the_table(self) -> None:
        without = {name for name, type_ in INSTANCE_TYPES.items() if type_.max_efa_interfaces == 0}
        assert without == {"g6.xlarge"} and set(INSTANCE_TYPES) == without | EFA_CARDS.keys()

    def test_types_of_different_layouts_cannot_share_a_template(self) -> None:
        types = [INSTANCE_TYPES["p5.48xlarge"], INSTANCE_TYPES["p4d.24xlarge"]]
        with pytest.raises(ValueError, match=r"p5.48xlarge, p4d.24xlarge .* a group each"):
            plan_interfaces(types, efa=True)

    def test_a_type_without_efa_cannot_be_given_a_layout_with_it(self) -> None:
        with pytest.raises(ValueError, match="no interface on card 0, device 0"):
            plan_interfaces([INSTANCE_TYPES["g6.xlarge"]], efa=True)


class TestWhatEc2WouldRefuse:
    @given(all_types)
    def test_the_catalogs_layouts_pass(self, type_: Any) -> None:
        assert not layout_faults(type_.efa_layout or (PLAIN,), type_)

    @given(names_with_efa, st.data())
    def test_an_index_beyond_the_cards_interfaces(self, name: str, data: st.DataObject) -> None:
        type_ = INSTANCE_TYPES[name]
        card = data.draw(st.integers(0, type_.network_card_count - 1))
        device = data.draw(st.integers(type_.max_interfaces_on(card), 99))
        layout = [*type_.efa_layout, NetworkInterface(card, device, "interface")]
        assert layout_faults(layout, type_) == [f"device index {device} on card {card} of {name} is too high"]

    @given(names_with_efa, st.integers(0, 10))
    def test_a_card_that_the_type_lacks(self, name: str, beyond: int) -> None:
        type_ = INSTANCE_TYPES[name]
        card = type_.network_card_count + beyond
        (fault,) = layout_faults([*type_.efa_layout, NetworkInterface(card, 0, "interface")], type_)
        assert fault.startswith(f"network card {card}")

    @given(names_with_efa)
    def test_more_efas_than_the_type_takes_or_two_on_a_card(self, name: str) -> None:
        type_ = INSTANCE_TYPES[name]
        card = type_.efa_layout[1].network_card_index
        faults = layout_faults([*type_.efa_layout, NetworkInterface(card, 9, "efa-only")], type_)
        assert any("EFA interfaces, " in fault for fault in faults)
        assert f"2 EFA interfaces on card {card} of {name}" in faults

    def test_efa_on_the_first_card_of_p6_b300(self) -> None:
        type_ = INSTANCE_TYPES["p6-b300.48xlarge"]
        layout = [*type_.efa_layout[:-1], NetworkInterface(0, 1, "efa-only")]
        assert layout_faults(layout, type_) == ["1 EFA interfaces on card 0 of p6-b300.48xlarge"]

    def test_an_efa_only_interface_as_the_first_one_and_none_at_all(self) -> None:
        type_ = INSTANCE_TYPES["p5.48xlarge"]
        assert "would carry no address" in layout_faults([NetworkInterface(0, 0, "efa-only")], type_)[0]
        assert "carries the address" in layout_faults([NetworkInterface(1, 0, "efa-only")], type_)[0]

    def test_two_interfaces_in_one_place(self) -> None:
        assert "two interfaces have one card and one device index" in layout_faults(
            [PLAIN, PLAIN], INSTANCE_TYPES["g6.xlarge"]
        )


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
