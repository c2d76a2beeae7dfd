"""The catalog's instance types agree with themselves, with EC2's rules and with the API's own snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from components.catalog import (
    INSTANCE_TYPES,
    NAMES_WITHOUT_FACTS,
    InstanceType,
    UnknownName,
    image_profile,
    instance_type,
    nearest,
    on_demand_price,
)
from ops import catalog_check

TYPES = list(INSTANCE_TYPES.values())
FAMILIES = sorted({type_.family for type_ in TYPES})
every_family = pytest.mark.parametrize("family", FAMILIES)

# Quota codes by family, from the Service Quotas tables of the EC2 guide and SkyPilot's mapping (2026).
ON_DEMAND_CODES = {"g": "L-DB2E81BA", "p": "L-417A185B"}
SPOT_CODES = {
    **{family: "L-3819A6DF" for family in FAMILIES if family.startswith("g")},
    **dict.fromkeys(("p3", "p3dn", "p4d", "p4de"), "L-7212CCBC"),
    **dict.fromkeys(("p5", "p5e", "p5en"), "L-C4BD4855"),
    **dict.fromkeys(("p6-b200", "p6-b300", "p6e-gb200"), None),  # no document tells it
}


def of(family: str) -> list[InstanceType]:
    return [type_ for type_ in TYPES if type_.family == family]


@pytest.fixture(scope="module", params=["us-east-1", "us-west-2"])
def ec2(request: pytest.FixtureRequest) -> Iterator[tuple[Any, str]]:
    """EC2 as moto replays it: DescribeInstanceTypes and -Offerings of 2026-09-30."""
    with mock_aws():
        yield (
            boto3.client("ec2", request.param, aws_access_key_id="x", aws_secret_access_key="x"),
            request.param,
        )


class TestAgainstTheEc2Api:
    def test_every_fact_and_every_zone_is_as_the_api_says(self, ec2: tuple[Any, str]) -> None:
        client, region = ec2
        missing = "p6e-gb200.36xlarge: EC2 does not list it, the catalog says that us-east-1 offers it"
        assert catalog_check.check(client, region) == ([missing] if region == "us-east-1" else [])

    def test_a_row_that_is_wrong_is_found(
        self, ec2: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client, region = ec2
        wrong = {"vcpus": 1, "max_efa_interfaces": 17, "zone_ids": {region: ("use1-az9",)}}
        types = {"p6-b300.48xlarge": instance_type("p6-b300.48xlarge").model_copy(update=wrong)}
        monkeypatch.setattr(catalog_check, "INSTANCE_TYPES", types)
        found = [line for line in catalog_check.check(client, region) if line.startswith("p6-b300")]
        assert found[:2] == [
            "p6-b300.48xlarge: vCPUs is 192 by EC2, 1 in the catalog",
            "p6-b300.48xlarge: EFA interfaces is 16 by EC2, 17 in the catalog",
        ]
        assert len(found) == 3 and found[2].endswith("by EC2, use1-az9 in the catalog")

    def test_local_zones_are_no_difference(self, ec2: tuple[Any, str]) -> None:
        client, _ = ec2
        p5 = instance_type("p5.48xlarge")
        rows = {p5.name: client.describe_instance_types(InstanceTypes=[p5.name])["InstanceTypes"][0]}
        own = set(p5.zone_ids["us-east-1"])
        assert not list(
            catalog_check.differences([p5], rows, {p5.name: {*own, "use1-atl2-az1"}}, "us-east-1")
        )
        more = {p5.name: {*own, "use1-az7"}}
        (line,) = catalog_check.differences([p5], rows, more, "us-east-1")
        assert line.startswith("p5.48xlarge: zones are use1-az1, use1-az2")

    def test_a_gpu_type_that_the_catalog_lacks_is_found(
        self, ec2: tuple[Any, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client, region = ec2
        few = {name: type_ for name, type_ in INSTANCE_TYPES.items() if type_.family != "g6"}
        monkeypatch.setattr(catalog_check, "INSTANCE_TYPES", few)
        found = [
            line for line in catalog_check.check(client, region) if line.endswith("the catalog does not")
        ]
        assert found == sorted(
            f"{t.name}: EC2 has it, the catalog does not" for t in TYPES if t.family == "g6"
        )


class TestEveryType:
    def test_all_of_ec2s_nvidia_types_are_there_and_those_without_facts_are_named(self) -> None:
        assert len(TYPES) == 69 and NAMES_WITHOUT_FACTS == ("p6e-gb300",)
        assert {t.gpu.manufacturer for t in TYPES} == {"NVIDIA"}

    @every_family
    def test_it_has_gpus_and_their_memory(self, family: str) -> None:
        for type_ in of(family):
            gpu = type_.gpu
            assert gpu.count >= 1 and gpu.memory_mib_each > 0
            assert (gpu.partition < 1) == (type_.family in {"g6f", "gr6f"})

    @every_family
    def test_its_cards_make_up_its_interfaces(self, family: str) -> None:
        for type_ in of(family):
            cards = [type_.card(index) for index in range(type_.network_card_count)]
            assert [c.first_index for c in type_.network_cards] == [0] + [
                c.last_index + 1 for c in type_.network_cards[:-1]
            ]
            assert cards[0].ena  # the first interface has an address
            most = [card.max_interfaces for card in cards]
            if type_.max_network_interfaces is None:
                assert None in most and type_.unverified
            else:
                assert sum(m for m in most if m is not None) == type_.max_network_interfaces

    @every_family
    def test_it_has_one_efa_a_card_at_most(self, family: str) -> None:
        """eksctl#8685: the number of cards is not the number of EFAs."""
        for type_ in of(family):
            with_efa = sum(type_.card(index).efa for index in range(type_.network_card_count))
            if type_.efa_cards is None:
                assert type_.max_efa_interfaces == with_efa
            else:
                assert len(type_.efa_cards) <= type_.max_efa_interfaces <= with_efa and type_.unverified
            assert (type_.rdma_read is None) == (type_.max_efa_interfaces == 0 or "RDMA" in type_.unverified)

    @every_family
    def test_its_quota_codes_are_its_familys(self, family: str) -> None:
        for type_ in of(family):
            codes = type_.vcpu_quota_codes
            assert codes.on_demand == ON_DEMAND_CODES[type_.family[0]]
            assert codes.spot == SPOT_CODES[type_.family]
            if codes.spot is None and "spot" in type_.purchase_options:
                assert "the code of its spot quota" in type_.unverified

    @every_family
    def test_its_zones_are_known_or_said_to_be_unknown(self, family: str) -> None:
        for type_ in of(family):
            if not type_.zone_ids:
                assert any("zones" in what for what in type_.unverified) and type_.regions is None
                continue
            for region, zones in type_.zone_ids.items():
                prefix = {"us-east-1": "use1", "us-west-2": "usw2"}[region]
                assert all(zone.startswith(f"{prefix}-az") for zone in zones) and list(zones) == sorted(
                    set(zones)
                )
                if zones:
                    assert type_.regions is not None and region in type_.regions

    @every_family
    def test_what_is_not_known_is_said(self, family: str) -> None:
        for type_ in of(family):
            unknown = [name for name, value in type_ if value is None and name not in MAY_BE_ABSENT]
            assert bool(unknown) <= bool(type_.unverified), unknown
            if type_.vcpu_quota_codes.spot is None:
                assert type_.unverified

    @every_family
    def test_ebs_figures_are_in_order(self, family: str) -> None:
        for type_ in of(family):
            if type_.ebs is not None:
                assert 0 < type_.ebs.baseline_mbps <= type_.ebs.max_mbps and type_.ebs.max_attachments > 1

    @every_family
    def test_it_is_dated_and_has_a_source(self, family: str) -> None:
        for type_ in of(family):
            assert date(2026, 1, 1) <= type_.as_of <= date(2026, 11, 30) and type_.source

    @every_family
    def test_it_has_a_price_unless_it_is_sold_by_other_means(self, family: str) -> None:
        for type_ in of(family):
            price = on_demand_price(type_.name, "us-east-1")
            assert (price is None) == (type_.name in {"p5e.48xlarge", "p6e-gb200.36xlarge"})


MAY_BE_ABSENT = {
    "efa_cards",
    "instance_store",
    "rdma_read",
    "rdma_write",
}  # None says: all of them; none at all


class TestNames:
    def test_a_card_that_does_not_exist_is_an_error(self) -> None:
        with pytest.raises(IndexError, match=r"g6\.xlarge has no network card 1"):
            instance_type("g6.xlarge").max_interfaces_on(1)

    def test_an_unknown_name_is_told_with_the_nearest_match(self) -> None:
        with pytest.raises(
            UnknownName, match=r"^unknown instance type 'P5\.48XLARG'; nearest match: p5\.48xlarge$"
        ):
            instance_type("P5.48XLARG")
        with pytest.raises(UnknownName, match=r"^unknown image profile 'windows'$"):
            image_profile("windows")

    @given(st.sampled_from(list(INSTANCE_TYPES)))
    def test_a_name_in_capitals_finds_itself(self, name: str) -> None:
        assert nearest(name.upper(), INSTANCE_TYPES) == name
