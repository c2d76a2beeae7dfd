"""Each rule over one GPU group, once satisfied and once broken, with the exact line that a person reads."""

from __future__ import annotations

from typing import Any

import pytest

from components.settings import group_rules, type_rules
from tests.unit.rule_cases import Case, group, lines

CASES = [
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
    types = dict(type_rules.INSTANCE_TYPES)
    types["g6.xlarge"] = types["g6.xlarge"].model_copy(update=facts)
    monkeypatch.setattr(type_rules, "INSTANCE_TYPES", types)


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
