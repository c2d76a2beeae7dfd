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
    IMAGE_PROFILES,
    INSTANCE_TYPES,
    NAMES_WITHOUT_FACTS,
    InstanceType,
    UnknownName,
    find_types,
    image_profile,
    images_for,
    instance_type,
    nearest,
    on_demand_price,
    why_unserved,
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


class TestFractionalGpus:
    """The API counts 0 GPUs there: code that multiplies by the count gets none."""

    @pytest.mark.parametrize(
        ("name", "part", "gb"),
        [
            ("g6f.large", 0.125, 3),
            ("g6f.2xlarge", 0.25, 6),
            ("g6f.4xlarge", 0.5, 12),
            ("gr6f.4xlarge", 0.5, 12),
        ],
    )
    def test_one_is_seen_and_its_memory_is_the_parts(self, name: str, part: float, gb: int) -> None:
        gpu = instance_type(name).gpu
        assert (gpu.count, gpu.partition, gpu.memory_label_gb) == (1, part, gb)
        whole = instance_type("g6.xlarge").gpu.memory_mib_each
        assert gpu.memory_mib_each == pytest.approx(whole * part, abs=1)
        assert gpu.text == f"1/{round(1 / part)} L4"

    def test_a_part_is_no_gpu_for_whoever_needs_one(self) -> None:
        assert not [t.name for t in find_types(gpus=1) if t.gpu.partition < 1]
        assert "g6f.large" in [t.name for t in find_types()]


class TestTheMemoryLabel:
    @pytest.mark.parametrize(
        ("name", "label"),
        [
            *(
                ("g4dn.xlarge", 16),
                ("g5.xlarge", 24),
                ("g6.xlarge", 24),
                ("g6e.xlarge", 48),
                ("g7.2xlarge", 32),
            ),
            *(("g7e.2xlarge", 96), ("p3dn.24xlarge", 32), ("p4d.24xlarge", 40), ("p4de.24xlarge", 80)),
            *(
                ("p5.48xlarge", 80),
                ("p5en.48xlarge", 141),
                ("p6-b200.48xlarge", 192),
                ("p6-b300.48xlarge", 288),
            ),
        ],
    )
    def test_it_is_what_people_say(self, name: str, label: int) -> None:
        assert instance_type(name).gpu.memory_label_gb == label

    @every_family
    def test_it_is_never_below_what_the_api_reports(self, family: str) -> None:
        for type_ in of(family):
            assert (
                type_.gpu.memory_gib_each - 0.5
                <= type_.gpu.memory_label_gb
                <= type_.gpu.memory_gib_each * 1.08
            )


class TestFindingByNeed:
    def test_eight_gpus_of_80_gib_and_efa(self) -> None:
        found = [type_.name for type_ in find_types(gpus=8, gpu_memory_gib=80, efa=True)]
        assert found == [
            *("p4de.24xlarge", "g7e.48xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge"),
            *("p6-b300.48xlarge", "p5e.48xlarge"),  # p5e has no list price and comes last
        ]

    def test_24_gb_find_a_gpu_of_which_the_api_reports_less(self) -> None:
        assert "g5.xlarge" in [type_.name for type_ in find_types(gpu_memory_gib=24)]
        assert "g5.xlarge" not in [type_.name for type_ in find_types(gpu_memory_gib=25)]

    def test_blocks_of_a_region(self) -> None:
        found = {type_.name for type_ in find_types(region="us-west-2", capacity_block=True)}
        assert found == {
            *("p4d.24xlarge", "p4de.24xlarge", "p5.4xlarge", "p5.48xlarge", "p5e.48xlarge", "p5en.48xlarge"),
            *("p6-b200.48xlarge", "p6-b300.48xlarge"),
        }

    def test_other_needs(self) -> None:
        assert {type_.family for type_ in find_types(architecture="arm64")} == {"g5g", "p6e-gb200"}
        assert [type_.name for type_ in find_types(spot=False)] == ["p6e-gb200.36xlarge"]
        assert find_types(gpus=9) == []
        assert "p5e.48xlarge" not in [type_.name for type_ in find_types(region="us-east-1")]
        assert "p3.2xlarge" not in [type_.name for type_ in find_types(region="us-east-1")]  # not known

    @given(st.integers(1, 8), st.sampled_from([16, 24, 40, 80]), st.booleans())
    def test_what_is_found_has_it_and_prices_rise(self, gpus: int, gib: int, efa: bool) -> None:
        found = find_types(gpus=gpus, gpu_memory_gib=gib, efa=efa)
        for type_ in found:
            assert type_.gpu.count >= gpus and type_.gpu.memory_label_gb >= gib
            assert (type_.max_efa_interfaces > 0) == efa
        prices = [on_demand_price(type_.name, "us-east-1") for type_ in found]
        listed = [price.low_usd for price in prices if price is not None]
        assert listed == sorted(listed) and None not in prices[: len(listed)]


class TestImages:
    @every_family
    def test_a_type_has_an_image_or_a_reason_why_not(self, family: str) -> None:
        for type_ in of(family):
            assert bool(images_for(type_)) == (why_unserved(type_) is None)

    def test_which_families_no_image_serves_and_why(self) -> None:
        unserved = {type_.family: why_unserved(type_) for type_ in TYPES if not images_for(type_)}
        assert unserved == {
            "g7": "no release notes of Deep Learning AMIs up to 2026-10-09 list g7",
            "p3": "no image profile has the proprietary NVIDIA driver",
            "p3dn": "no image profile has the proprietary NVIDIA driver",
        }

    @pytest.mark.parametrize("name", ["p6-b300.48xlarge", "g7e.48xlarge"])
    def test_only_the_base_image_serves_the_newest_and_brings_torch_as_an_artifact(self, name: str) -> None:
        assert images_for(instance_type(name)) == ["dlami-base-ubuntu-24.04"]
        assert image_profile("dlami-base-ubuntu-24.04").torch_is_artifact
        assert not image_profile("dlami-pytorch-ubuntu-24.04").torch_is_artifact

    @pytest.mark.parametrize("name", ["g5g.xlarge", "p6e-gb200.36xlarge"])
    def test_arm_types_have_the_arm_image_only(self, name: str) -> None:
        """pulumi-eks#738: an arm type needs an arm image, and no x86 one."""
        assert images_for(instance_type(name)) == ["dlami-base-arm64-ubuntu-24.04"]
        assert not image_profile("local").serves(instance_type(name))

    def test_fractional_gpus_need_an_image_with_the_grid_driver(self) -> None:
        assert all("pytorch" in name for name in images_for(instance_type("g6f.large")))

    def test_an_image_must_boot_as_the_type_does(self) -> None:
        pytorch, p4d = image_profile("dlami-pytorch-ubuntu-24.04"), instance_type("p4d.24xlarge")
        assert p4d.boot_modes == ("legacy-bios",) and pytorch.serves(p4d)
        uefi = pytorch.model_copy(update={"boot_modes": ("uefi",)})
        assert uefi.why_not(p4d) == "it boots by uefi, p4d.24xlarge by legacy-bios only"

    def test_the_local_image_promises_no_gpu_and_no_minor_version(self) -> None:
        local = image_profile("local")
        assert (local.accelerator, local.abi, local.drivers) == ("none", "host", ())
        assert all(local.serves(type_) for type_ in TYPES if type_.architecture == "x86_64")

    @pytest.mark.parametrize("name", [name for name in IMAGE_PROFILES if name != "local"])
    def test_an_image_of_aws_says_what_nobody_verified(self, name: str) -> None:
        profile = image_profile(name)
        assert profile.unverified and profile.drivers and profile.source
        assert date(2026, 1, 1) <= profile.as_of <= date(2026, 11, 30)
        assert set(profile.families) <= {*FAMILIES, *NAMES_WITHOUT_FACTS}
        amazon = "amazon-linux" in name
        assert profile.root_device_name == ("/dev/xvda" if amazon else "/dev/sda1")
        assert profile.nvme_owner == ("none" if amazon else "image")


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
