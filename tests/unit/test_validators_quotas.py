"""What a stack needs of the account's quotas, and what is told about it."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import INSTANCE_TYPES
from components.catalog.quotas import QUOTAS, quota_by_code
from components.settings import advice, load, quota_rules
from components.settings.faults import id_of
from components.settings.quota_rules import QuotaNeed, quota_needs
from tests.unit.rule_cases import Changes, configured, group, lines


def needs(changes: Changes) -> dict[str, int]:
    return {need.quota.key: need.needed for need in quota_needs(load("dev", configured(changes)))}


def told(changes: Changes) -> list[tuple[str, str]]:
    """Level and line of what the rules of quotas tell; other validators have their say elsewhere."""
    found = advice(load("dev", configured(changes)))
    return [(one.level, one.told) for one in found if one.validator in map(id_of, quota_rules.RULES)]


class TestTheTable:
    def test_every_row_is_dated_and_has_a_source(self) -> None:
        for quota in QUOTAS.values():
            assert date(2026, 1, 1) <= quota.as_of <= date(2026, 11, 30) and quota.source
            assert quota.default is None or quota.default >= 0

    def test_no_code_is_there_twice(self) -> None:
        codes = [quota.code for quota in QUOTAS.values() if quota.code is not None]
        assert len(set(codes)) == len(codes)

    def test_it_knows_every_code_of_the_instance_types(self) -> None:
        for type_ in INSTANCE_TYPES.values():
            for code in (type_.vcpu_quota_codes.on_demand, type_.vcpu_quota_codes.spot):
                assert code is None or quota_by_code(code).unit == "vCPUs", type_.name

    def test_the_spot_quota_of_p6_has_no_guessed_code(self) -> None:
        assert (QUOTAS["spot-p6"].code, QUOTAS["spot-p6"].default) == (None, None)


class TestVcpus:
    @pytest.mark.parametrize(
        ("changes", "expected"),
        [
            (group(instanceTypes=["p5.48xlarge"], maxNodes=8), {"on-demand-p": 1536}),
            (group(instanceTypes=["g6.xlarge"], maxNodes=2), {"on-demand-g": 8}),
            (group(instanceTypes=["p5.48xlarge"], purchase={"spotPercent": 100}), {"spot-p5": 384}),
            (group(instanceTypes=["p4d.24xlarge"], purchase={"spotPercent": 100}), {"spot-p4-p3-p2": 192}),
            (group(instanceTypes=["p6-b200.48xlarge"], purchase={"spotPercent": 100}), {"spot-p6": 384}),
            # 2 on demand, and of the 4 above them 1 on demand and 3 spot.
            (
                group(maxNodes=6, purchase={"onDemandBase": 2, "spotPercent": 75}),
                {"on-demand-g": 12, "spot-g": 12},
            ),
            # Whichever type the nodes turn out to be, the larger one is counted.
            (group(instanceTypes=["g6.xlarge", "g6.4xlarge"], maxNodes=3), {"on-demand-g": 48}),
        ],
    )
    def test_are_those_of_all_nodes_by_quota(self, changes: Changes, expected: dict[str, int]) -> None:
        settings = load("dev", configured(changes))
        found = {need.quota.key: need.needed for need in quota_needs(settings) if need.is_of_gpus}
        assert found == expected

    def test_a_capacity_block_counts_as_a_block_and_not_towards_the_quota(self) -> None:
        block = {
            "kind": "capacity-block",
            "id": "cr-0123456789abcdef0",
            "zone": "us-east-1a",
            "count": 4,
            "startsAt": "2027-01-11T11:30:00Z",
            "endsAt": "2027-01-18T11:30:00Z",
        }
        found = needs(
            group(instanceTypes=["p5.48xlarge"], zones=["us-east-1a"], maxNodes=4, reservation=block)
        )
        assert found["capacity-block-instances"] == 4 and "on-demand-p" not in found

    @given(nodes=st.integers(1, 200), base=st.integers(0, 50), percent=st.integers(0, 100))
    def test_whatever_auto_scaling_buys_is_covered(self, nodes: int, base: int, percent: int) -> None:
        """Of the nodes above the base, ceil of the on-demand share is on demand (Auto Scaling guide)."""
        purchase = {"onDemandBase": base, "spotPercent": percent}
        if percent and base >= nodes:
            return  # refused: the share never applies
        found = needs(group(maxNodes=nodes, purchase=purchase))
        held = min(base, nodes)
        above = nodes - held
        on_demand = held - (-above * (100 - percent) // 100)
        assert found.get("on-demand-g", 0) >= 4 * on_demand
        assert found.get("spot-g", 0) >= 4 * (nodes - on_demand)
        assert found.get("on-demand-g", 0) + found.get("spot-g", 0) <= 4 * (nodes + 1)


class TestWhatIsTold:
    def test_one_line_for_each_quota_of_gpus(self) -> None:
        assert told(group(instanceTypes=["p5.48xlarge"], maxNodes=8, zones=["us-east-1a"])) == [
            (
                "info",
                "gpu-training:gpuGroups: Running On-Demand P instances L-417A185B: 1536 vCPUs at maxNodes; the "
                "documented default is 0; `make doctor` asks what the account has [gpu-quotas-hold-all-nodes]",
            )
        ]

    @pytest.mark.parametrize(
        ("network", "endpoints"),
        [({"nat": "none"}, 6), ({"nat": "none", "endpoints": ["ssm", "ecr.api"]}, 7)],
    )
    def test_endpoints_are_counted_as_the_network_makes_them(
        self, network: dict[str, Any], endpoints: int
    ) -> None:
        changes: Changes = {("network", key): value for key, value in network.items()}
        assert needs(changes)["interface-endpoints"] == endpoints

    def test_a_warning_where_aws_must_be_asked_for_more(self) -> None:
        zones = [f"us-east-1{letter}" for letter in "abcdef"]
        changes: Changes = {("network",): {"availabilityZones": zones, "nat": "per-az"}}
        [line] = [line for level, line in told(changes) if level == "warning"]
        assert line == (
            "gpu-training:network.nat: EC2-VPC Elastic IPs L-0263D0A3: 6 addresses at maxNodes; the documented "
            "default is 5; ask AWS for more first, in Service Quotas [other-quotas-hold-the-stack]"
        )

    def test_an_error_where_no_request_helps(self) -> None:
        schedules = [
            {"name": f"s{n}", "recurrence": f"{n % 60} {n // 60} * * *", "desiredNodes": 1}
            for n in range(126)
        ]
        assert any(
            line.startswith(
                "gpu-training:gpuGroups[0]: Scheduled actions per Auto Scaling group: 126 actions"
            )
            for line in lines("dev", group(schedules=schedules))
        )

    @pytest.mark.parametrize(
        ("changes", "key"),
        [
            (
                {("lustre",): {"zone": "us-east-1a", "capacityGib": 100800 + 2400}},
                "lustre-persistent-storage",
            ),
            (group(maxNodes=300), "gp3-storage"),
            (
                {
                    ("network",): {
                        "availabilityZones": ["us-east-1a"],
                        "endpoints": [f"s{n}" for n in range(60)],
                    }
                },
                "interface-endpoints",
            ),
        ],
    )
    def test_what_is_needed_beside_gpus_is_compared_too(self, changes: Changes, key: str) -> None:
        # Other validators may judge these values as well; here only the need is looked at.
        settings: Any = load("dev", configured({}))
        given_ = configured(changes)
        settings = type(settings).model_validate({**given_, "stack": "dev"}, by_alias=True, by_name=False)
        found = {need.quota.key: need for need in quota_needs(settings)}
        assert found[key].is_above_default


def test_a_need_without_a_documented_default_is_never_above_it() -> None:
    assert not QuotaNeed(QUOTAS["spot-p6"], 10**6, ()).is_above_default


def test_every_rule_has_an_id_a_level_and_a_text() -> None:
    assert all((rule.__doc__ or "").strip() for rule in quota_rules.RULES)
