"""Subnet planning: what must hold for every block and every choice of zones."""

from __future__ import annotations

from ipaddress import IPv4Network
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.network.plan import LARGEST_VPC_PREFIX, SMALLEST_VPC_PREFIX, plan_subnets, zone_slot

LETTERS = "abcdefgh"
prefixes = st.integers(LARGEST_VPC_PREFIX, SMALLEST_VPC_PREFIX)
zone_lists = st.lists(st.sampled_from([f"us-east-1{letter}" for letter in LETTERS]), min_size=1, unique=True)


@st.composite
def blocks(draw: st.DrawFn) -> str:
    prefix = draw(prefixes)
    host = draw(st.integers(0, 2**16 - 1))
    return str(IPv4Network((f"10.{host >> 8}.{host & 255}.0", prefix), strict=False))


def all_subnets(cidr: str, zones: list[str]) -> list[IPv4Network]:
    return [
        IPv4Network(block)
        for zone in plan_subnets(cidr, zones)
        for block in (zone.private_cidr, zone.public_cidr)
    ]


@given(blocks(), zone_lists)
def test_subnets_lie_in_the_vpc_and_never_overlap(cidr: str, zones: list[str]) -> None:
    subnets = all_subnets(cidr, zones)
    assert all(subnet.subnet_of(IPv4Network(cidr)) for subnet in subnets)
    assert not any(one.overlaps(other) for one, other in combinations(subnets, 2))


@given(blocks(), zone_lists)
def test_no_subnet_is_smaller_than_aws_allows(cidr: str, zones: list[str]) -> None:
    assert max(subnet.prefixlen for subnet in all_subnets(cidr, zones)) <= 28


@given(blocks(), zone_lists, zone_lists)
def test_adding_or_removing_zones_anywhere_leaves_the_others_untouched(
    cidr: str, zones: list[str], other_zones: list[str]
) -> None:
    before = {subnets.zone: subnets for subnets in plan_subnets(cidr, zones)}
    after = {subnets.zone: subnets for subnets in plan_subnets(cidr, other_zones)}
    assert {zone: before[zone] for zone in before.keys() & after.keys()} == {
        zone: after[zone] for zone in before.keys() & after.keys()
    }


@given(zone_lists)
def test_the_callers_order_is_kept(zones: list[str]) -> None:
    assert [subnets.zone for subnets in plan_subnets("10.0.0.0/16", zones)] == zones


def test_a_sixteen_gives_each_zone_4096_private_and_512_public_addresses() -> None:
    (subnets,) = plan_subnets("10.42.0.0/16", ["us-east-1b"])
    assert (subnets.private_cidr, subnets.public_cidr) == ("10.42.16.0/20", "10.42.130.0/23")


@pytest.mark.parametrize("cidr", ["10.0.0.0/22", "10.0.0.0/15", "10.0.0.1/16", "10.0.0.0/28", "not a block"])
def test_blocks_that_cannot_hold_the_plan_are_refused(cidr: str) -> None:
    with pytest.raises(ValueError):
        plan_subnets(cidr, ["us-east-1a"])


def test_a_zone_named_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="named twice"):
        plan_subnets("10.0.0.0/16", ["us-east-1a", "us-east-1a"])


@pytest.mark.parametrize(
    "zone", ["us-east-1-atl-1a", "us-east-1-wl1-bos-wlz-1", "use1-az1", "us-east-1", "us-east-1z"]
)
def test_local_zones_and_zone_ids_are_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="availability zone"):
        zone_slot(zone)


def test_every_letter_has_its_own_slot() -> None:
    assert [zone_slot(f"us-gov-west-1{letter}") for letter in LETTERS] == list(range(8))
