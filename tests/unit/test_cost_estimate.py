"""What a stack costs: every line by hand, the sums by property."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.compute.plan import plan_purchase
from components.cost import (
    HOURS_PER_MONTH,
    Estimate,
    Line,
    Span,
    cost_table,
    estimate,
    hourly_cost_usd,
    monthly_cost_usd,
)
from components.cost.node_prices import node_prices
from components.cost.nodes import group_cost, split_purchase
from components.network.plan import node_services
from components.settings import Settings, load
from tests.unit.stack_files import mapping_of, minimal


def stack(region: str = "us-east-1", nat: str = "none", zones: str = "ab", **group: Any) -> Settings:
    namespace = minimal()
    namespace["region"] = region
    namespace["network"] = {"availabilityZones": [f"{region}{zone}" for zone in zones], "nat": nat}
    namespace["gpuGroups"][0] |= {"maxNodes": 10, **group}
    return load("dev", namespace)


def with_keys(**changes: Any) -> Settings:
    return load("dev", {**minimal(), **changes})


def line(found: Estimate, what: str) -> Line:
    (match,) = [line for line in found.lines if what in line.what]
    return match


def usd(found: Estimate, what: str) -> Span:
    amount = line(found, what).usd
    assert amount is not None
    return amount


def a_month(found: Estimate, what: str) -> float:
    return usd(found, what).high * HOURS_PER_MONTH


class TestNodes:
    def test_on_demand_cost_their_list_price(self) -> None:
        on_demand = line(estimate(stack(desiredNodes=3)), "on demand")
        assert on_demand.count == 3
        assert on_demand.usd == Span(3 * 0.8048, 3 * 0.8048)
        assert on_demand.as_of is not None and on_demand.as_of.isoformat() == "2026-07-20"

    def test_spot_cost_a_range(self) -> None:
        found = estimate(stack(desiredNodes=2, purchase={"spotPercent": 100}))
        assert usd(found, "spot") == Span(2 * 0.4104, 2 * 0.8048)
        assert found.usd("on-demand") == Span(0, 0)

    def test_a_price_limit_caps_the_spot_price(self) -> None:
        purchase = {"spotPercent": 100, "maxPriceUsdPerHour": 0.5}
        assert usd(estimate(stack(desiredNodes=2, purchase=purchase)), "spot").high == pytest.approx(1.0)

    def test_root_volumes_cost_by_the_month(self) -> None:
        volumes = line(estimate(stack(desiredNodes=2, rootVolumeGib=365)), "root volumes")
        assert volumes.count == 730
        assert volumes.usd is not None and volumes.usd.high == pytest.approx(0.08)

    def test_of_a_capacity_block_were_paid_before(self) -> None:
        block = {
            "kind": "capacity-block",
            "id": "cr-0123456789abcdef0",
            "zone": "us-east-1a",
            "count": 2,
            "startsAt": "2027-01-11T11:30:00Z",
            "endsAt": "2027-01-18T11:30:00Z",
        }
        found = stack(zones="a", instanceTypes=["p5.48xlarge"], maxNodes=2, reservation=block)
        full = estimate(found, at_max=True)
        assert usd(full, "capacity block") == Span(0, 0)
        assert full.groups[0].as_bought == Span(0, 0)
        assert any("cr-0123456789abcdef0 was paid when it was bought" in note for note in full.notes)

    def test_of_a_reservation_are_billed_even_when_there_are_none(self) -> None:
        reserved = {"kind": "on-demand", "id": "cr-0123456789abcdef0", "zone": "us-east-1a", "count": 4}
        found = estimate(stack(zones="a", maxNodes=4, reservation=reserved))
        assert any("the 4 instances of reservation cr-0123456789abcdef0" in note for note in found.notes)

    @pytest.mark.parametrize("spot_percent", [0, 50, 100])
    def test_all_ways_to_buy_them_are_side_by_side(self, spot_percent: int) -> None:
        (group,) = stack(purchase={"spotPercent": spot_percent}).gpu_groups
        cost = group_cost(group, 4, "us-east-1")
        assert cost.all_on_demand == Span(4 * 0.8048, 4 * 0.8048)
        assert cost.all_spot == Span(4 * 0.4104, 4 * 0.8048)
        spot = 4 * spot_percent // 100
        assert cost.as_bought is not None
        assert cost.as_bought.low == pytest.approx((4 - spot) * 0.8048 + spot * 0.4104)


class TestNetwork:
    @pytest.mark.parametrize(("nat", "gateways"), [("single", 1), ("per-az", 3)])
    def test_nat_gateways_and_their_addresses_are_counted(self, nat: str, gateways: int) -> None:
        found = estimate(stack(nat=nat, zones="abc"))
        assert usd(found, "NAT gateways").high == pytest.approx(0.045 * gateways)
        assert usd(found, "public IPv4").high == pytest.approx(0.005 * gateways)

    def test_without_nat_there_is_no_line_for_it(self) -> None:
        assert not any("NAT" in line.what or "IPv4" in line.what for line in estimate(stack()).lines)

    def test_without_nat_the_endpoints_in_its_place_are_counted(self) -> None:
        settings = stack(zones="abc")
        endpoints = line(estimate(settings), "interface endpoints, one")
        assert endpoints.count == len(node_services(settings)) * 3
        assert endpoints.usd is not None and endpoints.usd.high == pytest.approx(0.01 * endpoints.count)
        assert not any("endpoints" in line.what for line in estimate(stack(nat="single")).lines)

    def test_further_endpoints_are_counted_beside_a_nat_gateway(self) -> None:
        network = {**minimal()["network"], "nat": "single", "endpoints": ["ecr.api", "ecr.dkr"]}
        assert line(estimate(with_keys(network=network)), "interface endpoints, one").count == 2 * 2

    def test_of_a_vpc_that_exists_nothing_is_counted_and_that_is_said(self) -> None:
        subnets = {f"us-east-1{zone}": f"subnet-0123456789abcdef{zone}" for zone in "ab"}
        network = {
            **minimal()["network"],
            "cidr": "10.0.0.0/16",
            "existing": {"vpcId": "vpc-0123456789abcdef0", "subnetIds": subnets},
        }
        found = estimate(with_keys(network=network))
        assert not any("NAT" in one.what or "endpoint" in one.what for one in found.lines)
        assert any("VPC exists already" in note for note in found.notes)


class TestStorageKeysAndMonitoring:
    def test_a_file_system_costs_by_capacity_and_throughput(self) -> None:
        lustre = {"zone": "us-east-1a", "capacityGib": 1200}
        found = estimate(with_keys(lustre=lustre))
        assert a_month(found, "FSx for Lustre, PERSISTENT_2, 125 MB/s") == pytest.approx(174)
        scratch = estimate(with_keys(lustre={**lustre, "deployment": "SCRATCH_2"}))
        assert a_month(scratch, "FSx for Lustre, SCRATCH_2") == pytest.approx(168)

    def test_a_throughput_without_a_known_price_is_named(self) -> None:
        lustre = {
            "zone": "us-east-1a",
            "capacityGib": 1200,
            "throughputMbpsPerTib": 500,
            "metadataIops": 6000,
        }
        unknown = estimate(with_keys(lustre=lustre)).unknown
        assert unknown == ("GiB of FSx for Lustre, PERSISTENT_2, 500 MB/s a TiB", "FSx metadata IOPS")

    def test_a_key_of_the_stacks_own_and_secrets_cost_by_the_month(self) -> None:
        secrets = {"HF_TOKEN": "research/hugging-face", "HF_TOKEN_2": "research/hugging-face", "WANDB": "w"}
        found = estimate(with_keys(kms={"mode": "create"}, secrets=secrets))
        assert a_month(found, "KMS keys") == pytest.approx(1)
        assert line(found, "secrets").count == 2  # two variables of one secret
        assert a_month(found, "secrets") == pytest.approx(0.8)
        assert not any("KMS" in one.what or "secret" in one.what for one in estimate(stack()).lines)

    def test_an_alarm_costs_once_for_each_metric_that_it_watches(self) -> None:
        assert line(estimate(stack()), "alarms").count == 2 + 1 + 1
        assert line(estimate(stack(purchase={"spotPercent": 1})), "alarms").count == 2 + 1 + 1 + 2
        assert a_month(estimate(stack()), "alarms") == pytest.approx(0.4)
        assert a_month(estimate(stack()), "dashboards") == pytest.approx(3)

    def test_a_kubernetes_cluster_that_exists_costs_nothing_here_and_that_is_said(self) -> None:
        monitored = {"cluster": "existing", "kubeconfig": "kind: Config"}
        notes = estimate(with_keys(monitoring=monitored)).notes
        assert any("Kubernetes cluster exists already" in note for note in notes)

    def test_usage_is_priced_and_not_added_up(self) -> None:
        found = estimate(stack(nat="single"))
        assert usd(found, "GB through NAT").high == 0.045
        assert usd(found, "GB of logs").high == 0.5
        assert usd(found, "GB-month of S3").high == 0.023
        assert found.total.high == pytest.approx(0.045 + 0.005 + (4 * 0.10 + 3.0) / 730)


class TestUnknownPrices:
    def test_are_named_and_in_no_sum(self) -> None:
        settings = stack(region="us-west-2", nat="none", instanceTypes=["g6e.48xlarge"], desiredNodes=1)
        found = estimate(settings)
        assert "trainers: g6e.48xlarge, on demand" in found.unknown
        assert found.usd("on-demand") == Span(0, 0)
        [row] = [text for text in cost_table("dev", found, found) if text.startswith("trainers: g6e")]
        assert row.split()[-2:] == ["not", "known"]
        assert hourly_cost_usd(settings)["groupsAtMaxNodes"] == {
            "trainers": {
                "nodes": 10,
                **dict.fromkeys(
                    f"{way}{end}" for way in ("asBought", "allOnDemand", "allSpot") for end in ("Low", "High")
                ),
            }
        }

    def test_of_one_type_makes_the_groups_price_unknown(self) -> None:
        group = {"instanceTypes": ["p4d.24xlarge"], "desiredNodes": 1, "purchase": {"spotPercent": 100}}
        known = stack(region="us-west-2", efa="off", **group)
        assert usd(estimate(known), "spot").high == pytest.approx(9.7315)
        mixed = known.gpu_groups[0].model_copy(update={"instance_types": ["p4d.24xlarge", "g6.xlarge"]})
        assert line(estimate(known.model_copy(update={"gpu_groups": [mixed]})), "spot").usd is None


class TestOutputs:
    def test_have_the_bounds_at_creation_and_when_full(self) -> None:
        output = hourly_cost_usd(load("local", mapping_of("local")))
        standing = 12 * 0.01 + 2 * 30 * 0.08 / 730 + (6 * 0.1 + 3) / 730
        assert output == {
            "onDemand": 0.8048,
            "spotLow": 0.4104,
            "spotHigh": 0.8048,
            "standing": round(standing, 4),
            "totalLow": round(0.8048 + 0.4104 + standing, 4),
            "totalHigh": round(2 * 0.8048 + standing, 4),
            "totalLowAtMaxNodes": round(2.036 + standing + 60 * 0.08 / 730, 4),
            "totalHighAtMaxNodes": round(3.2192 + standing + 60 * 0.08 / 730, 4),
            "region": "us-east-1",
            "pricesAsOf": ["2025-06-28", "2026-11-30"],
            "unknown": [],
            "unknownAtMaxNodes": [],
            "groupsAtMaxNodes": {
                "trainers": {
                    "nodes": 4,
                    "asBoughtLow": 2.036,
                    "asBoughtHigh": 3.2192,
                    "allOnDemandLow": 3.2192,
                    "allOnDemandHigh": 3.2192,
                    "allSpotLow": 1.6416,
                    "allSpotHigh": 3.2192,
                }
            },
        }

    def test_a_month_is_730_hours(self) -> None:
        settings = load("prod", mapping_of("prod"))
        hourly, monthly = hourly_cost_usd(settings), monthly_cost_usd(settings)
        for name, amount in monthly.items():
            an_hour = hourly[name]
            assert isinstance(an_hour, float)
            assert amount == pytest.approx(an_hour * 730, abs=0.05)

    def test_production_costs_little_until_a_node_runs(self) -> None:
        output = monthly_cost_usd(load("prod", mapping_of("prod")))
        assert output["totalHigh"] == output["standing"] == 115.1
        assert output["totalHighAtMaxNodes"] == 394775.71

    def test_the_table_has_every_line_side_by_side_and_the_sum(self) -> None:
        settings = load("local", mapping_of("local"))
        table = cost_table("local", estimate(settings), estimate(settings, at_max=True))
        assert table[0] == (
            "cost of local in us-east-1, USD; list prices of 2025-06-28 to 2026-11-30; 730 hours a month"
        )
        rows = {" ".join(row.split()) for row in table}
        assert "trainers: g6.xlarge, on demand 1 0.80 1 0.80 587.50" in rows
        assert "trainers: g6.xlarge, spot 1 0.41 to 0.80 3 1.23 to 2.41 899 to 1,763" in rows
        assert "trainers 4 2.04 to 3.22 3.22 1.64 to 3.22" in rows
        assert any(row.startswith("by use, each: GB through interface endpoints 0.01, ") for row in rows)
        [total] = [row for row in rows if row.startswith("together")]
        assert total.endswith("1.35 to 1.74 2.17 to 3.36 1,587 to 2,451")
        assert max(len(row) for row in table[:-4]) <= 132


class TestNodePrices:
    def test_are_what_cluster_json_takes(self) -> None:
        assert node_prices(["g6.xlarge"], "us-east-1") == {
            "g6.xlarge": {
                "onDemandUsd": 0.8048,
                "spotLowUsd": 0.4104,
                "spotHighUsd": 0.8048,
                "asOf": "2025-06-28",
            }
        }

    def test_a_limit_caps_spot_and_nothing_else(self) -> None:
        price = node_prices(["g6.xlarge"], "us-east-1", 0.5)["g6.xlarge"]
        assert (price["onDemandUsd"], price["spotLowUsd"], price["spotHighUsd"]) == (0.8048, 0.4104, 0.5)

    def test_a_type_without_a_price_is_left_out(self) -> None:
        assert node_prices(["g6e.48xlarge"], "us-west-2") == {}


SOUND = stack()


def varied(name: str, n: int, percent: int, nat: str = "none", gib: int = 200) -> Settings:
    """Sound settings changed in place: reading and judging a configuration anew takes too long here."""
    [group] = SOUND.gpu_groups
    purchase = group.purchase.model_copy(update={"spot_percent": percent})
    changes = {"name": name, "desired_nodes": n, "purchase": purchase, "root_volume_gib": gib}
    network = SOUND.network.model_copy(update={"nat": nat})
    return SOUND.model_copy(update={"gpu_groups": [group.model_copy(update=changes)], "network": network})


@given(base=st.integers(0, 9), percent=st.integers(1, 100))
def test_the_split_follows_the_policy_that_auto_scaling_gets(base: int, percent: int) -> None:
    (group,) = varied("trainers", 0, percent).gpu_groups
    purchase = group.purchase.model_copy(update={"on_demand_base": base})
    group = group.model_copy(update={"purchase": purchase})
    policy = plan_purchase(group.instance_types, group.purchase)
    assert policy is not None
    above = 1000
    on_demand, _ = split_purchase(group, base + above)
    assert on_demand == policy.on_demand_base_nodes + policy.on_demand_percent_above_base * above // 100


nodes = st.integers(0, 10)
bases = st.integers(0, 10)
percents = st.integers(0, 100)


@given(n=nodes, base=bases, percent=percents)
def test_the_split_uses_the_base_first_and_loses_no_node(n: int, base: int, percent: int) -> None:
    group = SOUND.gpu_groups[0]
    purchase = group.purchase.model_copy(update={"on_demand_base": base, "spot_percent": percent})
    on_demand, spot = split_purchase(group.model_copy(update={"purchase": purchase}), n)
    assert on_demand + spot == n
    assert on_demand >= min(n, base) and spot >= 0
    assert abs(spot - max(0, n - base) * percent / 100) < 1


def cost(n: int, percent: int, nat: str = "none", gib: int = 200) -> Span:
    return estimate(varied("trainers", n, percent, nat, gib)).total


@given(n=st.integers(0, 9), percent=percents, gib=st.integers(30, 1000))
def test_more_nodes_larger_volumes_and_more_gateways_never_cost_less(n: int, percent: int, gib: int) -> None:
    here = cost(n, percent, "single", gib)
    assert cost(n + 1, percent, "single", gib).low >= here.low
    assert cost(n + 1, percent, "single", gib).high >= here.high
    assert cost(n, percent, "single", gib + 1).high >= here.high
    assert cost(n, percent, "per-az", gib).high > here.high


@given(n=nodes, percent=st.integers(1, 99))
def test_more_spot_never_costs_more(n: int, percent: int) -> None:
    """From 1 %: a group's first spot node adds the alarm for missing spot capacity."""
    assert cost(n, percent + 1).low <= cost(n, percent).low + 1e-9
    assert cost(n, percent + 1).high <= cost(n, percent).high + 1e-9


@given(n=nodes, base=bases, percent=percents)
def test_the_chosen_mix_lies_between_all_spot_and_all_on_demand(n: int, base: int, percent: int) -> None:
    group = SOUND.gpu_groups[0]
    purchase = group.purchase.model_copy(update={"on_demand_base": base, "spot_percent": percent})
    found = group_cost(group.model_copy(update={"purchase": purchase}), n, "us-east-1")
    assert found.all_spot and found.as_bought and found.all_on_demand
    assert found.all_spot.low - 1e-9 <= found.as_bought.low <= found.as_bought.high
    assert found.as_bought.high <= found.all_on_demand.high + 1e-9


@given(n=nodes, m=nodes, percent=percents)
def test_two_groups_cost_what_each_costs_alone(n: int, m: int, percent: int) -> None:
    one, other = varied("one", n, percent), varied("other", m, percent)
    both = estimate(one.model_copy(update={"gpu_groups": [*one.gpu_groups, *other.gpu_groups]}))
    once = usd(both, "interface endpoints, one").high + usd(both, "dashboards").high
    assert both.total.high == pytest.approx(estimate(one).total.high + estimate(other).total.high - once)
    assert both.total.low == pytest.approx(estimate(one).total.low + estimate(other).total.low - once)
