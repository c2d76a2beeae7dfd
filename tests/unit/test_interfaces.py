"""The network interfaces of every instance type in both layouts, and what EC2 would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import INSTANCE_TYPES, InstanceType, NetworkInterface, instance_type
from components.compute.interfaces import (
    Layout,
    addresses_per_node,
    interfaces_of,
    layout_faults,
    plan_layouts,
)

PLAIN = NetworkInterface(0, 0, "interface")
IP, BANDWIDTH = "ip-optimized", "bandwidth-optimized"
LAYOUTS: tuple[Layout, ...] = (IP, BANDWIDTH)
WITH_EFA = [type_ for type_ in INSTANCE_TYPES.values() if type_.max_efa_interfaces > 0]

# Cards that carry EFA in the recommended layout, by family and where its sizes differ by type: EC2 user guide,
# efa-acc-inst-types (2026). A type that is not here has no EFA.
EFA_CARDS: dict[str, Sequence[int]] = {
    **dict.fromkeys(("g4dn.8xlarge", "g4dn.12xlarge", "g4dn.16xlarge", "g4dn.metal", "p3dn.24xlarge"), (0,)),
    **dict.fromkeys((f"g5.{size}xlarge" for size in (8, 12, 16, 24, 48)), (0,)),
    **dict.fromkeys((f"g6.{size}xlarge" for size in (8, 12, 16, 24, 48)), (0,)),
    **dict.fromkeys(("gr6.8xlarge", "g6e.8xlarge", "g6e.12xlarge", "g6e.16xlarge", "p5.4xlarge"), (0,)),
    **dict.fromkeys(("g7.8xlarge", "g7.12xlarge", "g7.24xlarge", "g7e.8xlarge", "g7e.12xlarge"), (0,)),
    **dict.fromkeys(("g6e.24xlarge", "g7.48xlarge", "g7e.24xlarge"), range(2)),
    **dict.fromkeys(("g6e.48xlarge", "g7e.48xlarge", "p4d.24xlarge", "p4de.24xlarge"), range(4)),
    "p6-b200.48xlarge": range(8),
    "p5en.48xlarge": range(16),
    **dict.fromkeys(["p5.48xlarge", "p5e.48xlarge"], range(32)),
    "p6-b300.48xlarge": range(1, 17),  # 17 cards, and card 0 carries none
    "p6e-gb200.36xlarge": (1, 5, 9, 13),
}
# Cards that also get an address in the other layout, from the same page.
BANDWIDTH_CARDS: dict[str, Sequence[int]] = {
    **dict.fromkeys(["p5.48xlarge", "p5e.48xlarge"], range(4, 29, 4)),
    "p6-b200.48xlarge": range(1, 8),
    "p6-b300.48xlarge": range(1, 17),
}
all_types = st.sampled_from(list(INSTANCE_TYPES.values()))
types_with_efa = st.sampled_from(WITH_EFA)
layouts = st.sampled_from(LAYOUTS)


def efas(interfaces: Sequence[NetworkInterface]) -> list[NetworkInterface]:
    return [interface for interface in interfaces if interface.interface_type != "interface"]


class TestTheRecommendedLayout:
    @pytest.mark.parametrize("name", EFA_CARDS)
    def test_an_efa_node_has_one_address_and_one_efa_a_card(self, name: str) -> None:
        """terraform-aws-eks#2182: without a card index on each, all interfaces land on card 0."""
        # The device index counts on each card: 1 beside the plain interface, 0 where EFA is alone.
        expected = [PLAIN] + [
            NetworkInterface(card, 1 if card == 0 else 0, "efa-only") for card in EFA_CARDS[name]
        ]
        assert list(interfaces_of(INSTANCE_TYPES[name], True, IP)) == expected
        assert addresses_per_node(expected) == 1

    def test_every_type_with_efa_is_in_the_table(self) -> None:
        assert {type_.name for type_ in WITH_EFA} == EFA_CARDS.keys()

    def test_a_p5_node_uses_the_first_two_devices_of_each_card_only(self) -> None:
        """eksctl#7520: device index 2 on card 2 was refused, since a card takes two interfaces."""
        for layout in LAYOUTS:
            for interface in interfaces_of(instance_type("p5.48xlarge"), True, layout):
                assert interface.device_index < 2
                if interface.network_card_index > 0 and interface.interface_type == "efa-only":
                    assert interface.device_index == 0

    def test_efas_are_counted_by_the_types_efas_and_never_by_its_cards(self) -> None:
        """eksctl#8685: the number of cards is not the number of EFAs, and p6-b300 has one card more."""
        b300 = instance_type("p6-b300.48xlarge")
        assert (b300.network_card_count, b300.max_efa_interfaces) == (17, 16)
        assert len(efas(interfaces_of(b300, True, IP))) == 16

    def test_p6_b300_has_no_efa_on_its_first_card(self) -> None:
        """aws-parallelcluster#7143: a launch with EFA on card 0 was refused."""
        for layout in LAYOUTS:
            interfaces = interfaces_of(instance_type("p6-b300.48xlarge"), True, layout)
            assert [i for i in interfaces if i.network_card_index == 0] == [PLAIN]
            assert {(i.network_card_index, i.device_index) for i in efas(interfaces)} == {
                (card, 0) for card in range(1, 17)
            }

    def test_a_size_with_a_single_efa_gets_it(self) -> None:
        """dstack#1804: p5.4xlarge, with one EFA, was left out."""
        assert interfaces_of(instance_type("p5.4xlarge"), True, IP) == (
            PLAIN,
            NetworkInterface(0, 1, "efa-only"),
        )

    @pytest.mark.parametrize(
        "type_", [t for t in WITH_EFA if t.efa_cards is None], ids=lambda type_: type_.name
    )
    def test_all_efas_of_a_type_are_attached(self, type_: InstanceType) -> None:
        """karpenter#2440: a node without all of its EFAs has a part of its bandwidth."""
        for layout in LAYOUTS:
            assert len(efas(interfaces_of(type_, True, layout))) == type_.max_efa_interfaces


class TestTheLayoutForBandwidth:
    @pytest.mark.parametrize("name", BANDWIDTH_CARDS)
    def test_it_adds_an_address_at_device_1_of_the_documented_cards(self, name: str) -> None:
        type_ = instance_type(name)
        added = set(interfaces_of(type_, True, BANDWIDTH)) - set(interfaces_of(type_, True, IP))
        assert added == {NetworkInterface(card, 1, "interface") for card in BANDWIDTH_CARDS[name]}

    @pytest.mark.parametrize(
        ("name", "addresses"), [("p5.48xlarge", 8), ("p6-b200.48xlarge", 8), ("p6-b300.48xlarge", 17)]
    )
    def test_a_node_takes_as_many_addresses_as_the_guide_says(self, name: str, addresses: int) -> None:
        (group,) = plan_layouts([instance_type(name)], True, BANDWIDTH)
        assert group.addresses_per_node == addresses

    def test_other_types_have_one_layout(self) -> None:
        for type_ in INSTANCE_TYPES.values():
            if type_.name not in BANDWIDTH_CARDS:
                efa = type_.max_efa_interfaces > 0
                assert interfaces_of(type_, efa, BANDWIDTH) == interfaces_of(type_, efa, IP)


class TestAnyLayout:
    @given(all_types, layouts)
    def test_without_efa_every_type_has_one_plain_interface(self, type_: Any, layout: Layout) -> None:
        assert interfaces_of(type_, False, layout) == (PLAIN,)

    @given(types_with_efa, layouts)
    def test_ec2_takes_it(self, type_: Any, layout: Layout) -> None:
        interfaces = interfaces_of(type_, True, layout)
        assert not layout_faults(interfaces, type_)
        assert interfaces[0] == PLAIN and list(interfaces) == sorted(set(interfaces))
        assert all(interface.interface_type != "efa" for interface in interfaces)  # would take addresses
        cards = [interface.network_card_index for interface in efas(interfaces)]
        assert len(cards) == len(set(cards))

    @given(types_with_efa, layouts)
    def test_addresses_and_efas_are_all_there_is(self, type_: Any, layout: Layout) -> None:
        interfaces = interfaces_of(type_, True, layout)
        assert addresses_per_node(interfaces) + len(efas(interfaces)) == len(interfaces)


class TestTypesOfOneGroup:
    def test_types_with_the_same_interfaces_share_a_template(self) -> None:
        types = [instance_type(name) for name in ("p5e.48xlarge", "p5.48xlarge")]
        (group,) = plan_layouts(types, efa=True)
        assert group.instance_types == ("p5e.48xlarge", "p5.48xlarge") and len(group.interfaces) == 33

    def test_each_other_layout_has_a_template_of_its_own(self) -> None:
        types = [instance_type(name) for name in ("p5en.48xlarge", "p5e.48xlarge", "p5.48xlarge")]
        first, second = plan_layouts(types, efa=True)
        assert (first.instance_types, len(first.interfaces)) == (("p5en.48xlarge",), 17)
        assert (second.instance_types, len(second.interfaces)) == (("p5e.48xlarge", "p5.48xlarge"), 33)

    @given(st.lists(st.sampled_from(list(EFA_CARDS)), min_size=1, unique=True), st.booleans(), layouts)
    def test_every_type_is_in_the_group_of_its_own_interfaces(
        self, names: list[str], efa: bool, layout: Layout
    ) -> None:
        types = [instance_type(name) for name in names]
        groups = plan_layouts(types, efa, layout)
        assert len({group.interfaces for group in groups}) == len(groups)
        assert groups[0].instance_types[0] == types[0].name  # the preferred type's template comes first
        served = {name: group.interfaces for group in groups for name in group.instance_types}
        assert served == {type_.name: interfaces_of(type_, efa, layout) for type_ in types}

    def test_a_type_without_efa_cannot_be_given_a_layout_with_it(self) -> None:
        with pytest.raises(ValueError, match="no interface on card 0, device 0"):
            plan_layouts([instance_type("g6.xlarge")], efa=True)


class TestWhatEc2WouldRefuse:
    @given(types_with_efa, st.data())
    def test_an_index_beyond_the_cards_interfaces(self, type_: Any, data: st.DataObject) -> None:
        card = data.draw(st.sampled_from([c for c in range(type_.network_card_count) if type_.card(c).ena]))
        most = type_.max_interfaces_on(card)
        if most is None:
            return
        device = data.draw(st.integers(most, 99))
        layout = [*type_.efa_layout, NetworkInterface(card, device, "interface")]
        assert f"device index {device} on card {card} of {type_.name} is too high" in layout_faults(
            layout, type_
        )

    @given(types_with_efa, st.integers(0, 10))
    def test_a_card_that_the_type_lacks(self, type_: Any, beyond: int) -> None:
        card = type_.network_card_count + beyond
        (fault,) = layout_faults([*type_.efa_layout, NetworkInterface(card, 0, "interface")], type_)
        assert fault == f"network card {card}, {type_.name} has {type_.network_card_count}"

    @given(types_with_efa)
    def test_two_efas_on_a_card(self, type_: Any) -> None:
        card = type_.efa_layout[1].network_card_index
        faults = layout_faults([*type_.efa_layout, NetworkInterface(card, 9, "efa-only")], type_)
        assert f"2 EFA interfaces on card {card} of {type_.name}" in faults

    def test_more_efas_than_the_type_takes(self) -> None:
        type_ = instance_type("p4d.24xlarge")
        layout = [NetworkInterface(0, 0, "efa"), *type_.efa_layout[1:]]
        assert "5 EFA interfaces, p4d.24xlarge takes 4" in layout_faults(layout, type_)

    def test_more_interfaces_than_the_type_takes(self) -> None:
        type_ = instance_type("g5.48xlarge").model_copy(update={"max_network_interfaces": 1})
        assert layout_faults(type_.efa_layout, type_) == ["2 interfaces, g5.48xlarge takes 1"]

    def test_efa_on_the_first_card_of_p6_b300(self) -> None:
        type_ = instance_type("p6-b300.48xlarge")
        layout = [*type_.efa_layout[:-1], NetworkInterface(0, 1, "efa-only")]
        assert layout_faults(layout, type_) == ["1 EFA interfaces on card 0 of p6-b300.48xlarge"]

    def test_an_address_on_a_card_that_carries_efa_only(self) -> None:
        type_ = instance_type("p6e-gb200.36xlarge")
        layout = [PLAIN, NetworkInterface(1, 0, "interface")]
        assert layout_faults(layout, type_) == [
            "an interface with an address on card 1 of p6e-gb200.36xlarge, which carries EFA only"
        ]

    def test_an_efa_only_interface_as_the_first_one_and_none_at_all(self) -> None:
        type_ = instance_type("p5.48xlarge")
        assert "would carry no address" in layout_faults([NetworkInterface(0, 0, "efa-only")], type_)[0]
        assert "carries the address" in layout_faults([NetworkInterface(1, 0, "efa-only")], type_)[0]

    def test_two_interfaces_in_one_place(self) -> None:
        assert "two interfaces have one card and one device index" in layout_faults(
            [PLAIN, PLAIN], instance_type("g6.xlarge")
        )
