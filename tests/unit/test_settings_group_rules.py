"""Each rule over one GPU group, once satisfied and once broken, with the exact line that a person reads."""

from __future__ import annotations

from typing import Any

import pytest

from components.settings import group_rules
from tests.unit.rule_cases import IMAGE, Case, group, lines

ALL_TYPES = "g6.xlarge, g6.12xlarge, g6e.48xlarge, p4d.24xlarge, p5.48xlarge, p6-b300.48xlarge"
EFA_TYPES = "g6.12xlarge, g6e.48xlarge, p4d.24xlarge, p5.48xlarge, p6-b300.48xlarge"

CASES = [
    Case(
        group_rules.instance_types_are_known,
        group(instanceTypes=["p4d.24xlage"]),
        "gpu-training:gpuGroups[0].instanceTypes[0]: unknown instance type 'p4d.24xlage'; one of "
        f"{ALL_TYPES} "
        "(nearest match: p4d.24xlarge)",
        group(instanceTypes=["p4d.24xlarge"]),
    ),
    Case(
        group_rules.instance_types_are_known,
        group(instanceTypes=["g6.xlarge", "g6.xlarge"]),
        "gpu-training:gpuGroups[0].instanceTypes[1]: 'g6.xlarge' is there twice; name each type once",
        {},
    ),
    Case(
        group_rules.instance_types_are_offered,
        {
            ("region",): "eu-west-1",
            ("network", "availabilityZones"): ["eu-west-1a"],
            **group(instanceTypes=["p5.48xlarge"]),
        },
        "gpu-training:gpuGroups[0].instanceTypes[0]: p5.48xlarge is not offered in eu-west-1 (as of "
        "2026-09-30); "
        "offered in ap-northeast-1, ap-northeast-2, ap-south-1, ap-southeast-2, ap-southeast-3, "
        "ca-central-1, "
        "eu-north-1, eu-west-2, sa-east-1, us-east-1, us-east-2, us-west-1, us-west-2",
        {
            ("region",): "eu-west-1",
            ("network", "availabilityZones"): ["eu-west-1a"],
            **group(instanceTypes=["p4d.24xlarge"]),
        },
    ),
    Case(
        group_rules.instance_types_are_alike,
        group(instanceTypes=["g6.12xlarge", "g6.xlarge"], efa="off"),
        "gpu-training:gpuGroups[0].instanceTypes[1]: g6.xlarge has 1 L4, g6.12xlarge has 4 L4; "
        "put it into a group of its own",
        group(instanceTypes=["g6.12xlarge"], efa="off"),
    ),
    Case(
        group_rules.instance_types_are_alike,
        group(instanceTypes=["p4d.24xlarge", "p5.48xlarge"], zones=["us-east-1a"]),
        "gpu-training:gpuGroups[0].instanceTypes[1]: p5.48xlarge has another layout of EFA interfaces than "
        "p4d.24xlarge; put it into a group of its own, or write efa: off",
        {},
    ),
    Case(
        group_rules.zones_are_of_the_network,
        group(zones=["us-east-1c"]),
        "gpu-training:gpuGroups[0].zones[0]: 'us-east-1c' is not a zone of the network; "
        "one of us-east-1a, us-east-1b (nearest match: us-east-1b)",
        group(zones=["us-east-1b"]),
    ),
    Case(
        group_rules.zones_are_of_the_network,
        group(zones=["us-east-1a", "us-east-1a"]),
        "gpu-training:gpuGroups[0].zones[1]: 'us-east-1a' is there twice; name each zone once",
        {},
    ),
    Case(
        group_rules.efa_has_one_zone,
        group(instanceTypes=["p5.48xlarge"], efa="on"),
        "gpu-training:gpuGroups[0].zones: 2 zones for a group with EFA; name one, such as [us-east-1a]",
        group(instanceTypes=["p5.48xlarge"], efa="on", zones=["us-east-1b"]),
    ),
    Case(
        group_rules.cluster_placement_has_one_zone,
        group(placement="cluster", zones=["us-east-1b", "us-east-1a"]),
        "gpu-training:gpuGroups[0].zones: 2 zones for a group with a cluster placement; "
        "name one, such as [us-east-1b]",
        group(placement="cluster", zones=["us-east-1b"]),
    ),
    Case(
        group_rules.min_is_not_above_max,
        group(minNodes=3),
        "gpu-training:gpuGroups[0].minNodes: 3 is above maxNodes 2; at most 2, or raise maxNodes",
        group(minNodes=2),
    ),
    Case(
        group_rules.desired_is_within_bounds,
        group(minNodes=1, desiredNodes=0),
        "gpu-training:gpuGroups[0].desiredNodes: 0 is outside minNodes and maxNodes; from 1 to 2",
        group(minNodes=1, desiredNodes=1),
    ),
    Case(
        group_rules.desired_is_within_bounds,
        group(desiredNodes=3),
        "gpu-training:gpuGroups[0].desiredNodes: 3 is outside minNodes and maxNodes; from 0 to 2",
        group(desiredNodes=2),
    ),
    Case(
        group_rules.purchase_is_consistent,
        group(purchase={"maxPriceUsdPerHour": 1.5}),
        "gpu-training:gpuGroups[0].purchase.maxPriceUsdPerHour: a price limit for spot nodes, but "
        "spotPercent is 0; "
        "remove it or raise spotPercent",
        group(purchase={"maxPriceUsdPerHour": 1.5, "spotPercent": 1}),
    ),
    Case(
        group_rules.purchase_is_consistent,
        group(purchase={"onDemandBase": 2, "spotPercent": 50}),
        "gpu-training:gpuGroups[0].purchase.onDemandBase: 2 of at most 2 nodes are on demand, so "
        "spotPercent 50 "
        "never applies; lower it below maxNodes or write spotPercent: 0",
        group(purchase={"onDemandBase": 1, "spotPercent": 50}),
    ),
    Case(
        group_rules.efa_has_types_that_carry_it,
        group(efa="on", zones=["us-east-1a"]),
        "gpu-training:gpuGroups[0].efa: on, but g6.xlarge has no EFA; write auto or off, or use one of "
        f"{EFA_TYPES}",
        group(efa="on", zones=["us-east-1a"], instanceTypes=["g6.12xlarge"]),
    ),
    Case(
        group_rules.image_has_one_source,
        group(image={"profile": "local"}),
        "gpu-training:gpuGroups[0].image: neither amiId nor ssmParameter; give exactly one of them",
        group(image=IMAGE),
    ),
    Case(
        group_rules.image_has_one_source,
        group(image={**IMAGE, "ssmParameter": "/images/pytorch"}),
        "gpu-training:gpuGroups[0].image: both amiId and ssmParameter; give exactly one of them",
        group(image={"profile": "local", "ssmParameter": "/images/pytorch"}),
    ),
    Case(
        group_rules.image_profile_is_known,
        group(image={**IMAGE, "profile": "dlami-pytorch-ubuntu-22.04"}),
        "gpu-training:gpuGroups[0].image.profile: unknown image profile 'dlami-pytorch-ubuntu-22.04'; one "
        "of local, "
        "dlami-pytorch-ubuntu-24.04, dlami-base-ubuntu-24.04 (nearest match: dlami-pytorch-ubuntu-24.04)",
        group(image=IMAGE),
    ),
    Case(
        group_rules.image_serves_the_types,
        group(instanceTypes=["p6-b300.48xlarge"]),
        "gpu-training:gpuGroups[0].image.profile: dlami-pytorch-ubuntu-24.04 does not serve "
        "p6-b300.48xlarge; "
        "use local or dlami-base-ubuntu-24.04",
        group(instanceTypes=["p6-b300.48xlarge"], image={**IMAGE, "profile": "dlami-base-ubuntu-24.04"}),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_refuses_with_path_fault_and_remedy(case: Case) -> None:
    assert case.line in lines(case.stack, case.refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_accepts_what_is_right(case: Case) -> None:
    assert lines(case.stack, case.accepted) == []


def test_every_rule_has_a_case() -> None:
    # Every type of the catalog can be in a cluster placement and is sold as spot: see the tests below.
    by_catalog = {group_rules.placement_is_possible, group_rules.types_can_be_bought_so}
    own = {rule for rule in group_rules.RULES if rule.__module__ == group_rules.__name__}
    assert {case.rule for case in CASES} | by_catalog == own


def without(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    """The catalog with other facts about g6.xlarge."""
    types = dict(group_rules.INSTANCE_TYPES)
    types["g6.xlarge"] = types["g6.xlarge"].model_copy(update=facts)
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)


def test_a_type_without_cluster_placement_is_refused_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = group(placement="cluster", zones=["us-east-1a"])
    assert lines("dev", changes) == []
    without(monkeypatch, cluster_placement=False)
    assert lines("dev", changes) == [
        "gpu-training:gpuGroups[0].placement: g6.xlarge cannot be in a cluster placement group; write none"
    ]


def test_a_type_that_is_not_sold_as_spot_is_refused_as_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = group(purchase={"spotPercent": 100})
    assert lines("dev", changes) == []
    without(monkeypatch, purchase_options=("on-demand",))
    assert lines("dev", changes) == [
        "gpu-training:gpuGroups[0].instanceTypes[0]: g6.xlarge is not sold as spot; write spotPercent: 0"
    ]


def test_a_type_that_is_not_sold_as_spot_is_accepted_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, purchase_options=("on-demand",))
    assert lines("dev", {}) == []
    one_percent = lines("dev", group(purchase={"spotPercent": 1}))
    assert one_percent == [
        "gpu-training:gpuGroups[0].instanceTypes[0]: g6.xlarge is not sold as spot; write spotPercent: 0"
    ]


def test_the_base_may_be_all_of_the_group_where_no_share_is_spot() -> None:
    assert lines("dev", group(purchase={"onDemandBase": 2})) == []
    assert len(lines("dev", group(purchase={"onDemandBase": 2, "spotPercent": 1}))) == 1


def test_a_group_of_fixed_size_may_name_its_size_thrice() -> None:
    assert lines("dev", group(minNodes=2, maxNodes=2, desiredNodes=2)) == []
    assert len(lines("dev", group(minNodes=2, maxNodes=2, desiredNodes=1))) == 1


@pytest.mark.parametrize(
    ("efa", "zones", "refused"),
    [
        ("on", ["us-east-1a"], True),
        ("auto", ["us-east-1a"], True),  # would be on
        ("auto", ["us-east-1a", "us-east-1b"], False),  # off: EFA traffic does not leave a zone
        ("off", ["us-east-1a"], False),
    ],
)
def test_other_efa_layouts_matter_only_with_efa(
    monkeypatch: pytest.MonkeyPatch, efa: str, zones: list[str], refused: bool
) -> None:
    """Two types with the same GPUs, of which one has its EFA elsewhere."""
    types = dict(group_rules.INSTANCE_TYPES)
    first = types["p4d.24xlarge"]
    types["p4d.other"] = first.model_copy(update={"name": "p4d.other", "efa_layout": first.efa_layout[:-1]})
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)
    found = lines("dev", group(instanceTypes=["p4d.24xlarge", "p4d.other"], efa=efa, zones=zones))
    assert any("another layout of EFA interfaces" in line for line in found) == refused


def test_one_efa_is_enough_for_auto_to_turn_it_on(monkeypatch: pytest.MonkeyPatch) -> None:
    types = dict(group_rules.INSTANCE_TYPES)
    plain = types["g6.12xlarge"]
    types["g6.other"] = plain.model_copy(update={"name": "g6.other", "efa_layout": plain.efa_layout[::-1]})
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)
    found = lines("dev", group(instanceTypes=["g6.12xlarge", "g6.other"], zones=["us-east-1a"]))
    assert any("another layout" in line for line in found)


def test_types_with_and_without_efa_may_share_a_group_where_auto_turns_it_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types = dict(group_rules.INSTANCE_TYPES)
    bare = {"name": "g6.bare", "max_efa_interfaces": 0, "efa_layout": ()}
    types["g6.bare"] = types["g6.12xlarge"].model_copy(update=bare)
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)
    found = lines("dev", group(instanceTypes=["g6.12xlarge", "g6.bare"], zones=["us-east-1a"]))
    assert not any("another layout" in line for line in found)


def test_types_of_two_architectures_are_refused_in_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    types = dict(group_rules.INSTANCE_TYPES)
    types["g6.arm"] = types["g6.xlarge"].model_copy(update={"name": "g6.arm", "architecture": "arm64"})
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)
    found = lines("dev", group(instanceTypes=["g6.xlarge", "g6.arm"], image={**IMAGE, "profile": "local"}))
    expected = "gpu-training:gpuGroups[0].instanceTypes[1]: g6.arm is arm64, g6.xlarge is x86_64; "
    assert expected + "put it into a group of its own" in found
