"""Purchase, fall-back and placement: each rule once broken, with the line a person reads, and once satisfied."""

from __future__ import annotations

from typing import Any

import pytest

from components.settings import SettingsError
from components.settings import purchase_rules as rules
from components.settings.faults import id_of, level_of
from components.settings.load import advice, load
from tests.unit.rule_cases import IMAGE, Case, Changes, configured, group
from tests.unit.stack_files import minimal

SPOT = {"spotPercent": 100}
EFA: dict[str, Any] = {"instanceTypes": ["p4d.24xlarge"], "zones": ["us-east-1a"], "placement": "cluster"}


def with_fallback(spot: dict[str, Any] | None = None, **other: Any) -> Changes:
    """A spot group and its on-demand group, both changed as told."""
    one = minimal()["gpuGroups"][0]
    first = {**one, "purchase": SPOT, "fallbackGroup": "on-demand", **(spot or {})}
    return {("gpuGroups",): [first, {**one, "name": "on-demand", **other}]}


def told(changes: Changes) -> dict[str, str]:
    """Every line with the level of the validator that said it."""
    try:
        settings = load("dev", configured(changes))
    except SettingsError as error:
        return {str(fault): fault.level for fault in error.faults}
    return {str(fault): fault.level for fault in advice(settings)}


AT = "gpu-training:gpuGroups[0]"
CASES = [
    Case(
        rules.rebalance_needs_spot,
        group(purchase={"capacityRebalance": True}),
        f"{AT}.purchase.capacityRebalance: true, but spotPercent is 0; remove it or raise spotPercent",
        group(purchase={**SPOT, "capacityRebalance": True}),
    ),
    Case(
        rules.rebalance_disturbs_efa,
        group(**EFA, purchase={**SPOT, "capacityRebalance": True}),
        f"{AT}.purchase.capacityRebalance: true for a group with EFA: its whole world stops for each "
        "recommendation, also where no interruption follows; remove it",
        group(**EFA, purchase=SPOT),
    ),
    Case(
        rules.strategy_needs_spot,
        group(purchase={"strategy": "capacity-optimized"}),
        f"{AT}.purchase.strategy: a spot strategy, but spotPercent is 0; remove it or raise spotPercent",
        group(purchase={**SPOT, "strategy": "capacity-optimized"}),
    ),
    Case(  # aws-parallelcluster#2716
        rules.spot_has_several_pools,
        group(purchase=SPOT, zones=["us-east-1b"]),
        f"{AT}.instanceTypes: all spot nodes come from one pool, g6.xlarge in us-east-1b; add types with the same "
        "GPUs, zones, or a fallbackGroup",
        group(purchase=SPOT, zones=["us-east-1b"], instanceTypes=["g6.xlarge", "g6.2xlarge"]),
    ),
    Case(
        rules.fallback_group_is_there,
        with_fallback({"fallbackGroup": "on-demant"}),
        f"{AT}.fallbackGroup: no group 'on-demant'; one of on-demand (nearest match: on-demand)",
        with_fallback(),
    ),
    Case(
        rules.fallback_group_is_there,
        group(purchase=SPOT, fallbackGroup="trainers"),
        f"{AT}.fallbackGroup: the group itself; name another group",
        with_fallback(),
    ),
    Case(
        rules.fallback_group_is_there,
        with_fallback({"purchase": {}}),
        f"{AT}.fallbackGroup: a group without spot nodes has nothing to fall back from; remove it",
        with_fallback({"purchase": {"spotPercent": 1}}),
    ),
    Case(
        rules.fallback_group_is_on_demand,
        with_fallback(purchase={"spotPercent": 1}),
        f"{AT}.fallbackGroup: 'on-demand' buys spot; name a group with spotPercent: 0",
        with_fallback(purchase={"spotPercent": 0}),
    ),
    Case(
        rules.fallback_group_is_on_demand,
        with_fallback(fallbackGroup="trainers", purchase=SPOT),
        f"{AT}.fallbackGroup: 'on-demand' falls back itself; a chain is not followed: name its last group",
        with_fallback(),
    ),
    Case(
        rules.fallback_group_is_on_demand,
        with_fallback(
            reservation={
                "kind": "capacity-block",
                "id": "cr-0123456789abcdef0",
                "zone": "us-east-1a",
                "count": 2,
                "startsAt": "2027-01-11T11:30:00Z",
                "endsAt": "2027-01-18T11:30:00Z",
            }
        ),
        f"{AT}.fallbackGroup: 'on-demand' has nodes for a capacity block's time only; name another group",
        with_fallback(
            reservation={
                "kind": "on-demand",
                "id": "cr-0123456789abcdef0",
                "zone": "us-east-1a",
                "count": 2,
            },
            zones=["us-east-1a"],
        ),
    ),
    Case(
        rules.fallback_group_has_room,
        with_fallback(minNodes=2),
        f"{AT}.fallbackGroup: 'on-demand' cannot grow: minNodes is 2; raise its maxNodes",
        with_fallback(minNodes=1),
    ),
    Case(
        rules.fallback_group_has_room,
        with_fallback(schedules=[{"name": "night", "recurrence": "0 22 * * *", "desiredNodes": 0}]),
        f"{AT}.fallbackGroup: 'on-demand' has schedules; they and the alarm would set one size: remove the schedules",
        with_fallback(),
    ),
    Case(
        rules.fallback_group_has_room,
        with_fallback(idleStopMinutes=30),
        f"{AT}.fallbackGroup: 'on-demand' has idleStopMinutes; two alarms would set one size: remove it there; that of "
        "'trainers' serves both groups",
        with_fallback({"idleStopMinutes": 30}),
    ),
    Case(
        rules.fallback_group_has_room,
        with_fallback(desiredNodes=1),
        f"{AT}.fallbackGroup: 'on-demand' is created with 1 nodes; the alarm sets it to its minNodes 0 as soon as no "
        "spot node is lacking: remove desiredNodes",
        with_fallback(minNodes=1, desiredNodes=1),
    ),
    Case(
        rules.fallback_has_an_end,
        with_fallback(),
        f"{AT}.fallbackGroup: without idleStopMinutes on-demand nodes stay when a run ends while spot is short; write "
        "idleStopMinutes in this group, which serves both",
        with_fallback({"idleStopMinutes": 30}),
    ),
    Case(
        rules.fallback_group_can_join_the_run,
        with_fallback(instanceTypes=["g5.xlarge"]),
        f"{AT}.fallbackGroup: 'on-demand' has 1 A10G, this group 1 L4; use types with the same GPUs",
        with_fallback(instanceTypes=["g6.2xlarge"]),
    ),
    Case(  # an eighth of a GPU counts as one
        rules.fallback_group_can_join_the_run,
        with_fallback(instanceTypes=["g6f.large"]),
        f"{AT}.fallbackGroup: 'on-demand' has 1/8 L4, this group 1 L4; use types with the same GPUs",
        with_fallback(instanceTypes=["gr6.4xlarge"]),
    ),
    Case(
        rules.fallback_group_can_join_the_run,
        with_fallback(image={**IMAGE, "profile": "local"}),
        f"{AT}.fallbackGroup: 'on-demand' has the image profile local; give it dlami-pytorch-ubuntu-24.04",
        with_fallback(image={**IMAGE, "amiId": "ami-0123456789abcdef1"}),
    ),
    Case(
        rules.fallback_group_can_join_the_run,
        with_fallback(EFA, **{**EFA, "efa": "off", "placement": "none"}),
        f"{AT}.fallbackGroup: 'trainers' has EFA and 'on-demand' has not; their nodes share no network: write efa "
        "alike",
        with_fallback(EFA, **EFA),
    ),
    Case(
        rules.fallback_group_can_join_the_run,
        with_fallback(EFA, **{**EFA, "zones": ["us-east-1b"]}),
        f"{AT}.fallbackGroup: 'on-demand' with EFA is in us-east-1b; put it into us-east-1a",
        with_fallback(zones=["us-east-1b"]),  # without EFA nodes of two zones reach each other
    ),
    Case(  # terraform-aws-eks PR 2959: EFA and placement group are two options
        rules.efa_has_a_cluster_placement,
        group(**{**EFA, "placement": "none"}),
        f"{AT}.placement: none for a group with EFA: its nodes may be far apart, and collectives slower; write "
        "cluster, or efa: off",
        group(**{**EFA, "placement": "none", "efa": "off"}),
    ),
    Case(
        rules.placement_has_one_type,
        group(placement="cluster", zones=["us-east-1a"], instanceTypes=["g6.xlarge", "g6.2xlarge"]),
        f"{AT}.placement: cluster with 2 instance types: EC2 is more often out of capacity; name one type, or write "
        "none",
        group(placement="cluster", zones=["us-east-1a"]),
    ),
    Case(
        rules.placement_by_id_has_one_zone,
        group(placement="pg-0123456789abcdef0"),
        f"{AT}.zones: 2 zones for a group in pg-0123456789abcdef0, which has one if it is a cluster; name one zone, "
        "or suppress this where its strategy is partition or spread",
        group(placement="pg-0123456789abcdef0", zones=["us-east-1b"]),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{id_of(c.rule)}-{n}" for n, c in enumerate(CASES)])
def test_a_broken_rule_is_told_at_its_level_and_a_kept_one_is_silent(case: Case) -> None:
    assert told(case.refused).get(case.line) == level_of(case.rule)
    assert case.line not in told(case.accepted)
    if level_of(case.rule) == "error":  # what is accepted is so as a whole
        assert "error" not in told(case.accepted).values()


def test_every_rule_has_a_case_and_a_reason() -> None:
    assert {case.rule for case in CASES} == set(rules.RULES)
    assert all(rule.__doc__ for rule in rules.RULES)


def test_a_fallback_serves_one_group() -> None:
    changes = with_fallback()
    spot, other = changes["gpuGroups",]
    third = {**spot, "name": "more-spot"}
    line = (
        "gpu-training:gpuGroups[2].fallbackGroup: 'on-demand' is the fall-back of 'trainers'; two alarms would set "
        "one size: add a group"
    )
    found = told({("gpuGroups",): [spot, other, third]})
    assert [text for text, level in found.items() if level == "error"] == [line]


def test_efa_in_a_reservation_or_a_group_that_exists_needs_no_cluster_placement() -> None:
    by_id = {**EFA, "placement": "pg-0123456789abcdef0"}
    block = {
        "kind": "capacity-block",
        "id": "cr-0123456789abcdef0",
        "zone": "us-east-1a",
        "count": 2,
        "startsAt": "2027-01-11T11:30:00Z",
        "endsAt": "2027-01-18T11:30:00Z",
    }
    reserved = {"kind": "on-demand", "id": "cr-0123456789abcdef0", "zone": "us-east-1a", "count": 2}
    for changes in (by_id, *({**EFA, "placement": "none", "reservation": one} for one in (block, reserved))):
        assert not [line for line in told(group(**changes)) if ".placement: none" in line]
