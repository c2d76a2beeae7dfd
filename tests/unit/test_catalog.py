"""The catalog's facts agree with each other, with EC2's rules and with the EC2 API's own snapshot."""

from __future__ import annotations

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
    InstanceType,
    UnknownName,
    image_profile,
    instance_type,
    item_price,
    nearest,
    on_demand_price,
    spot_price,
)
from components.catalog.prices import PRICES

TYPES = list(INSTANCE_TYPES.values())
EFA_TYPES = [type_ for type_ in TYPES if type_.max_efa_interfaces > 0]


def by_name(value: object) -> str:
    return getattr(value, "name", str(value))


@pytest.fixture(scope="module")
def ec2_snapshot() -> dict[str, dict[str, Any]]:
    """DescribeInstanceTypes as moto replays it, by type."""
    with mock_aws():
        ec2 = boto3.client("ec2", "us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
        answer = ec2.describe_instance_types(InstanceTypes=list(INSTANCE_TYPES))
    return {str(row.get("InstanceType")): dict(row) for row in answer["InstanceTypes"]}


def test_the_six_types_are_there() -> None:
    assert list(INSTANCE_TYPES) == [
        "g6.xlarge",
        "g6.12xlarge",
        "g6e.48xlarge",
        "p4d.24xlarge",
        "p5.48xlarge",
        "p6-b300.48xlarge",
    ]


@pytest.mark.parametrize("type_", TYPES, ids=by_name)
def test_the_type_agrees_with_the_ec2_api(
    type_: InstanceType, ec2_snapshot: dict[str, dict[str, Any]]
) -> None:
    api = ec2_snapshot[type_.name]
    (gpu,) = api["GpuInfo"]["Gpus"]
    network = api["NetworkInfo"]
    assert type_.vcpus == api["VCpuInfo"]["DefaultVCpus"]
    assert type_.memory_gib * 1024 == api["MemoryInfo"]["SizeInMiB"]
    assert type_.architecture in api["ProcessorInfo"]["SupportedArchitectures"]
    assert (type_.gpu.manufacturer, type_.gpu.model) == (gpu["Manufacturer"], gpu["Name"])
    assert (type_.gpu.count, type_.gpu.memory_mib_each) == (gpu["Count"], gpu["MemoryInfo"]["SizeInMiB"])
    assert type_.network_card_count == network["MaximumNetworkCards"]
    assert type_.max_network_interfaces == network["MaximumNetworkInterfaces"]
    assert type_.max_efa_interfaces == network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
    for card in network["NetworkCards"]:
        assert type_.max_interfaces_on(card["NetworkCardIndex"]) == card["MaximumNetworkInterfaces"]
    assert set(type_.purchase_options) == set(api["SupportedUsageClasses"])
    assert type_.cluster_placement == ("cluster" in api["PlacementGroupInfo"]["SupportedStrategies"])
    disks = api["InstanceStorageInfo"]["Disks"][0]
    assert (type_.instance_store.disks, type_.instance_store.gb_each) == (disks["Count"], disks["SizeInGB"])


@pytest.mark.parametrize("type_", EFA_TYPES, ids=by_name)
def test_the_efa_layout_keeps_ec2s_rules(type_: InstanceType) -> None:
    layout = type_.efa_layout
    assert layout[0] == (0, 0, "interface")  # the primary interface carries the address and is never EFA-only
    efa_cards = [i.network_card_index for i in layout if i.interface_type != "interface"]
    assert len(efa_cards) == type_.max_efa_interfaces
    assert len(set(efa_cards)) == len(efa_cards)  # one EFA a card
    assert len({(i.network_card_index, i.device_index) for i in layout}) == len(layout)
    assert len(layout) <= type_.max_network_interfaces
    for interface in layout:
        assert interface.device_index < type_.max_interfaces_on(interface.network_card_index)
    for cards in type_.network_cards:
        for card in range(cards.first_index, cards.last_index + 1):
            assert (card in efa_cards) == cards.efa


def test_a_type_without_efa_has_no_efa_layout() -> None:
    assert [type_.name for type_ in TYPES if not type_.efa_layout] == ["g6.xlarge"]
    assert [type_.name for type_ in TYPES if type_.max_efa_interfaces == 0] == ["g6.xlarge"]


def test_the_first_card_of_p6_b300_has_no_efa() -> None:
    type_ = instance_type("p6-b300.48xlarge")
    assert not type_.efa_on_card0
    assert (type_.network_card_count, type_.max_efa_interfaces) == (17, 16)


def test_a_card_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(IndexError, match=r"g6\.xlarge has no network card 1"):
        instance_type("g6.xlarge").max_interfaces_on(1)


@pytest.mark.parametrize("type_", TYPES, ids=by_name)
def test_every_type_boots_on_an_image_of_aws(type_: InstanceType) -> None:
    images = [p for p in IMAGE_PROFILES.values() if p.accelerator == "nvidia" and p.serves(type_)]
    assert images


def test_only_the_base_image_serves_b300_and_brings_torch_as_an_artifact() -> None:
    b300 = instance_type("p6-b300.48xlarge")
    assert not image_profile("dlami-pytorch-ubuntu-24.04").serves(b300)
    assert image_profile("dlami-base-ubuntu-24.04").serves(b300)
    assert image_profile("dlami-base-ubuntu-24.04").torch_is_artifact
    assert not image_profile("dlami-pytorch-ubuntu-24.04").torch_is_artifact


def test_an_image_does_not_serve_another_architecture() -> None:
    arm = instance_type("g6.xlarge").model_copy(update={"architecture": "arm64"})
    assert not image_profile("local").serves(arm)


def test_the_local_image_promises_no_gpu_and_no_minor_version() -> None:
    local = image_profile("local")
    assert local.accelerator == "none"
    assert local.abi == "host"
    assert all(local.serves(type_) for type_ in TYPES)


def test_every_image_of_aws_says_what_nobody_verified() -> None:
    assert all(p.unverified for p in IMAGE_PROFILES.values() if p.accelerator == "nvidia")


@pytest.mark.parametrize("type_", TYPES, ids=by_name)
def test_every_type_has_an_on_demand_price_in_us_east_1(type_: InstanceType) -> None:
    price = on_demand_price(type_.name, "us-east-1")
    assert price is not None and 0.1 < price.low_usd == price.high_usd < 200


@pytest.mark.parametrize("price", PRICES.values(), ids=lambda p: f"{p.kind}-{p.item}-{p.region}")
def test_a_price_is_dated_and_sane(price: Any) -> None:
    assert 0 < price.low_usd <= price.high_usd
    assert date(2025, 1, 1) <= price.as_of <= date(2026, 11, 30)
    assert price.source
    if price.kind == "spot":
        on_demand = on_demand_price(price.item, price.region)
        assert on_demand is not None and price.high_usd <= on_demand.high_usd


def test_an_unknown_price_is_none_and_no_guess() -> None:
    assert on_demand_price("g6.xlarge", "us-west-2") is None
    assert spot_price("p6-b300.48xlarge", "us-east-1") is None
    assert item_price("gp3-gib-month", "us-west-2") is None


def test_every_fact_is_dated_and_has_a_source() -> None:
    for row in (*TYPES, *IMAGE_PROFILES.values()):
        assert date(2026, 1, 1) <= row.as_of <= date(2026, 11, 30)
        assert row.source


def test_an_unknown_name_is_told_with_the_nearest_match() -> None:
    with pytest.raises(
        UnknownName, match=r"^unknown instance type 'P5\.48XLARG'; nearest match: p5\.48xlarge$"
    ):
        instance_type("P5.48XLARG")
    with pytest.raises(UnknownName, match=r"^unknown image profile 'windows'$"):
        image_profile("windows")


@given(name=st.sampled_from(list(INSTANCE_TYPES)), place=st.integers(0, 5))
def test_a_name_with_one_letter_missing_finds_itself(name: str, place: int) -> None:
    assert nearest(name[:place] + name[place + 1 :], INSTANCE_TYPES) == name
