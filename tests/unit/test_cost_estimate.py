"""What a stack costs an hour: every line by hand, the sums by property."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.compute.plan import plan_purchase
from components.cost import Estimate, estimate, hourly_cost_usd
from components.cost.estimate import split_purchase
from components.monitoring.alarms import group_alarms
from components.network.plan import node_services
from components.settings import Settings, load
from tests.unit.stack_files import mapping_of, minimal


def stack(region: str = "us-east-1", nat: str = "none", zones: str = "ab", **group: Any) -> Settings:
    namespace = minimal()
    namespace["region"] = region
    namespace["network"] = {"availabilityZones": [f"{region}{zone}" for zone in zones], "nat": nat}
    namespace["gpuGroups"][0] |= {"maxNodes": 10, **group}
    return load("dev", namespace)


def line(found: Estimate, what: str) -> Any:
    (match,) = [line for line in found.lines if what in line.what]
    return match


def test_nodes_on_demand_cost_their_list_price() -> None:
    on_demand = line(estimate(stack(desiredNodes=3)), "on demand")
    assert on_demand.count == 3
    assert on_demand.low_usd_per_hour == on_demand.high_usd_per_hour == pytest.approx(3 * 0.8048)
    assert on_demand.as_of.isoformat() == "2026-07-20"


def test_spot_nodes_cost_a_range() -> None:
    found = estimate(stack(desiredNodes=2, purchase={"spotPercent": 100}))
    spot = line(found, "spot")
    assert spot.low_usd_per_hour == pytest.approx(2 * 0.4104)
    assert spot.high_usd_per_hour == pytest.approx(2 * 0.8048)
    assert found.low("on-demand") == 0


def test_a_price_limit_caps_the_spot_price() -> None:
    purchase = {"spotPercent": 100, "maxPriceUsdPerHour": 0.5}
    spot = line(estimate(stack(desiredNodes=2, purchase=purchase)), "spot")
    assert spot.high_usd_per_hour == pytest.approx(1.0)


def test_root_volumes_cost_by_the_month() -> None:
    volumes = line(estimate(stack(desiredNodes=2, rootVolumeGib=365)), "root volumes")
    assert volumes.count == 730
    assert volumes.low_usd_per_hour == pytest.approx(0.08)


@pytest.mark.parametrize(("nat", "gateways"), [("single", 1), ("per-az", 3)])
def test_nat_gateways_and_their_addresses_are_counted(nat: str, gateways: int) -> None:
    found = estimate(stack(nat=nat, zones="abc"))
    assert line(found, "NAT gateways").high_usd_per_hour == pytest.approx(0.045 * gateways)
    assert line(found, "public IPv4").high_usd_per_hour == pytest.approx(0.005 * gateways)


def test_without_nat_there_is_no_line_for_it() -> None:
    assert not any("NAT" in line.what or "IPv4" in line.what for line in estimate(stack()).lines)


def test_without_nat_the_endpoints_in_its_place_are_counted() -> None:
    endpoints = line(estimate(stack(zones="abc")), "interface endpoints")
    assert endpoints.count == len(node_services(stack(zones="abc"))) * 3
    assert endpoints.high_usd_per_hour == pytest.approx(0.01 * endpoints.count)
    assert not any("endpoints" in line.what for line in estimate(stack(nat="single")).lines)


def test_alarms_are_counted_by_group_and_one_more_for_spot() -> None:
    assert line(estimate(stack()), "alarms").count == 3
    assert line(estimate(stack(purchase={"spotPercent": 1})), "alarms").count == 4


@pytest.mark.parametrize("buys_spot", [False, True])
def test_the_alarms_of_a_group_are_as_many_as_monitoring_makes(buys_spot: bool) -> None:
    found = estimate(stack(purchase={"spotPercent": 50 if buys_spot else 0}))
    assert line(found, "alarms").count == len(group_alarms("any", buys_spot=buys_spot))


@given(base=st.integers(0, 9), percent=st.integers(1, 100))
def test_the_split_follows_the_policy_that_auto_scaling_gets(base: int, percent: int) -> None:
    (group,) = stack(purchase={"onDemandBase": base, "spotPercent": percent}).gpu_groups
    policy = plan_purchase(group.instance_types, group.purchase)
    assert policy is not None
    above = 1000
    on_demand, _ = split_purchase(group, base + above)
    assert on_demand == policy.on_demand_base_nodes + policy.on_demand_percent_above_base * above // 100


def test_usage_is_priced_and_not_added_up() -> None:
    found = estimate(stack(nat="single"))
    assert line(found, "GB through NAT").low_usd_per_hour == 0.045
    assert line(found, "GB of logs").low_usd_per_hour == 0.5
    assert found.total_high == pytest.approx(0.045 + 0.005 + 3 * 0.10 / 730)


def test_an_unknown_price_is_named_and_in_no_sum() -> None:
    found = estimate(stack(region="us-west-2", desiredNodes=1))
    assert "trainers: g6.xlarge, on demand" in found.unknown
    assert found.total_high == 0
    assert "| trainers: g6.xlarge, on demand | 1 | not known |  |" in found.table()


def test_one_unknown_type_makes_the_groups_price_unknown() -> None:
    group = {"instanceTypes": ["p4d.24xlarge"], "desiredNodes": 1, "purchase": {"spotPercent": 100}}
    known = stack(region="us-west-2", efa="off", **group)
    assert line(estimate(known), "spot").high_usd_per_hour == pytest.approx(9.7315)
    mixed = known.gpu_groups[0].model_copy(update={"instance_types": ["p4d.24xlarge", "g6.xlarge"]})
    assert line(estimate(known.model_copy(update={"gpu_groups": [mixed]})), "spot").high_usd_per_hour is None


def test_the_stack_output_has_the_bounds_at_creation_and_when_full() -> None:
    output = hourly_cost_usd(load("local", mapping_of("local")))
    assert output == {
        "onDemand": 0.8048,
        "spotLow": 0.4104,
        "spotHigh": 0.8048,
        "standing": 0.1271,
        "totalLow": 1.3423,
        "totalHigh": 1.7367,
        "region": "us-east-1",
        "pricesAsOf": "2025-06-28",
        "unknown": [],
        "totalLowAtMaxNodes": 2.1697,
        "totalHighAtMaxNodes": 3.3529,
        "unknownAtMaxNodes": [],
    }


def test_production_costs_nothing_but_the_network_until_a_node_runs() -> None:
    output = hourly_cost_usd(load("prod", mapping_of("prod")))
    assert output["totalHigh"] == output["standing"] == 0.1515
    assert output["totalHighAtMaxNodes"] == 540.7825
    assert output["unknownAtMaxNodes"] == []


def test_the_table_shows_every_line_and_the_sum() -> None:
    table = estimate(load("local", mapping_of("local"))).table().splitlines()
    assert table[2] == "| trainers: g6.xlarge, on demand | 1 | 0.8048 | 2026-07-20 |"
    assert table[3] == "| trainers: g6.xlarge, spot | 1 | 0.4104 to 0.8048 | 2025-06-28 |"
    assert table[-1].endswith("| **1.3223 to 1.7167** | |")


nodes = st.integers(0, 10)
bases = st.integers(0, 10)
percents = st.integers(0, 100)


@given(n=nodes, base=bases, percent=percents)
def test_the_split_uses_the_base_first_and_loses_no_node(n: int, base: int, percent: int) -> None:
    group = stack().gpu_groups[0]
    purchase = group.purchase.model_copy(update={"on_demand_base": base, "spot_percent": percent})
    on_demand, spot = split_purchase(group.model_copy(update={"purchase": purchase}), n)
    assert on_demand + spot == n
    assert on_demand >= min(n, base) and spot >= 0
    assert abs(spot - max(0, n - base) * percent / 100) < 1


def cost(n: int, percent: int, nat: str = "none", gib: int = 200) -> Estimate:
    return estimate(stack(desiredNodes=n, purchase={"spotPercent": percent}, nat=nat, rootVolumeGib=gib))


@given(n=st.integers(0, 9), percent=percents, gib=st.integers(30, 1000))
def test_more_nodes_larger_volumes_and_more_gateways_never_cost_less(n: int, percent: int, gib: int) -> None:
    here = cost(n, percent, "single", gib)
    assert cost(n + 1, percent, "single", gib).total_low >= here.total_low
    assert cost(n + 1, percent, "single", gib).total_high >= here.total_high
    assert cost(n, percent, "single", gib + 1).total_high >= here.total_high
    assert cost(n, percent, "per-az", gib).total_high > here.total_high


@given(n=nodes, percent=st.integers(1, 99))
def test_more_spot_never_costs_more(n: int, percent: int) -> None:
    """From 1 %: a group's first spot node adds the alarm for missing spot capacity."""
    assert cost(n, percent + 1).total_low <= cost(n, percent).total_low + 1e-9
    assert cost(n, percent + 1).total_high <= cost(n, percent).total_high + 1e-9


@given(n=nodes, m=nodes, percent=percents)
def test_two_groups_cost_what_each_costs_alone(n: int, m: int, percent: int) -> None:
    def group_of(count: int, name: str) -> Settings:
        return stack(name=name, desiredNodes=count, purchase={"spotPercent": percent})

    one, other = group_of(n, "one"), group_of(m, "other")
    both = one.model_copy(update={"gpu_groups": [*one.gpu_groups, *other.gpu_groups]})
    network = line(estimate(both), "interface endpoints").high_usd_per_hour  # is there once
    together = estimate(one).total_high + estimate(other).total_high - network
    assert estimate(both).total_high == pytest.approx(together)
    together = estimate(one).total_low + estimate(other).total_low - network
    assert estimate(both).total_low == pytest.approx(together)
