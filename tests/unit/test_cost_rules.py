"""Budget and price limits: each rule once broken, with the line a person reads, and once satisfied."""

from __future__ import annotations

from typing import Any

import pytest

from components.cost.budget_plan import TOLD_AT_PERCENT
from components.settings import SettingsError
from components.settings import cost_rules as rules
from components.settings.faults import id_of, level_of
from components.settings.load import advice, load
from tests.unit.rule_cases import Case, Changes, configured, group


def budget(monthly: float = 20000.0, **changes: Any) -> Changes:
    return {("budget",): {"monthlyUsd": monthly, "emails": ["gpu@example.com"], **changes}}


def lustre(monthly: float) -> Changes:
    return {**budget(monthly), ("lustre",): {"zone": "us-east-1a", "capacityGib": 1200, "retain": False}}


AT = "gpu-training:gpuGroups[0].purchase.maxPriceUsdPerHour"
SPOT = {"spotPercent": 100}
CASES = [
    Case(
        rules.budget_is_above_what_stands,
        budget(30.0),  # one NAT gateway with its address, four alarm metrics, a dashboard
        "gpu-training:budget.monthlyUsd: 30 USD is used up by what stands without any node training: 40 USD a month; "
        "write more than 40, or take away what stands",
        budget(2000.0),
    ),
    Case(
        rules.budget_is_above_what_stands,
        lustre(200.0),
        "gpu-training:budget.monthlyUsd: 200 USD is used up by what stands without any node training: 214 USD a month; "
        "write more than 214, or take away what stands",
        lustre(2000.0),
    ),
    Case(
        rules.budget_covers_full_groups,
        budget(500.0),
        "gpu-training:budget.monthlyUsd: 500 USD lasts 12.2 days with every group full, which costs 1,247 USD "
        "a month or more; meant so: nothing to do; else raise it or lower maxNodes",
        budget(1300.0),
    ),
    Case(
        rules.budget_addresses_are_addresses,
        budget(emails=["gpu@example"]),
        "gpu-training:budget.emails[0]: 'gpu@example' is no e-mail address; write one address, such as "
        "gpu-oncall@example.com",
        budget(),
    ),
    Case(
        rules.budget_addresses_are_addresses,
        budget(emails=["a@example.com", "a@example.com"]),
        "gpu-training:budget.emails[1]: 'a@example.com' is there twice; name each once",
        budget(emails=["a@example.com", "b@example.com"]),
    ),
    Case(
        rules.run_addresses_are_addresses,
        {("monitoring",): {"alerts": {"runEmails": ["a, b@example.com"]}}},
        "gpu-training:monitoring.alerts.runEmails[0]: 'a, b@example.com' is no e-mail address; write one "
        "address, such as gpu-oncall@example.com",
        {("monitoring",): {"alerts": {"runEmails": ["a@example.com"]}}},
    ),
    Case(
        rules.people_are_told_before_the_stop,
        budget(stopAtPercent=80),
        "gpu-training:budget.stopAtPercent: 80 % stops all groups before or as people are told at 80 %; write "
        "more than 80, or raise monthlyUsd",
        budget(stopAtPercent=81),
    ),
    Case(
        rules.spot_limit_is_below_on_demand,
        group(purchase={**SPOT, "maxPriceUsdPerHour": 0.9}),
        f"{AT}: 0.9 USD is above the on-demand price, 0.8048 USD (list price): it limits nothing; lower or remove it",
        group(purchase={**SPOT, "maxPriceUsdPerHour": 0.8048}),
    ),
]


def told(changes: Changes) -> dict[str, str]:
    """Every line with the level of the validator that said it."""
    try:
        settings = load("dev", configured(changes))
    except SettingsError as error:
        return {str(fault): fault.level for fault in error.faults}
    return {str(fault): fault.level for fault in advice(settings)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: id_of(case.rule))
def test_the_rule_says_what_is_wrong_and_leaves_what_is_right(case: Case) -> None:
    assert told(case.refused).get(case.line) == level_of(case.rule)
    start = case.line.partition(": ")[0]
    assert not [line for line in told(case.accepted) if line.startswith(start)]


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == {*rules.RULES, *rules.GROUP_RULES}


def test_a_stop_is_announced_from_the_plans_first_message_on() -> None:
    assert min(TOLD_AT_PERCENT) == rules.FIRST_TOLD_PERCENT


def test_a_price_that_is_not_known_is_no_fault() -> None:
    changes = {
        **group(instanceTypes=["g6e.48xlarge"], purchase={**SPOT, "maxPriceUsdPerHour": 900.0}),
        ("region",): "us-west-2",
        ("network", "availabilityZones"): ["us-west-2a"],
    }
    assert not [line for line in told(changes) if line.startswith(AT)]


def test_what_has_no_known_price_is_told_beside_the_figure() -> None:
    changes = {**lustre(500.0), ("lustre", "throughputMbpsPerTib"): 500}
    [line] = [line for line in told(changes) if "lasts" in line]
    assert "and what has no known price: GiB of FSx for Lustre, PERSISTENT_2, 500 MB/s a TiB" in line
