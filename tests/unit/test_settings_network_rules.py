"""Each rule over the network, once satisfied and once broken, with the exact line that a person reads."""

from __future__ import annotations

import re

import pytest
from moto.ec2.models.availability_zones_and_regions import RegionsAndZonesBackend

from components.catalog import REGIONS
from components.catalog.endpoint_services import ENDPOINT_SERVICES
from components.network.plan import LARGEST_VPC_PREFIX, PRIVATE_EXTRA_BITS, SMALLEST_VPC_PREFIX, plan_subnets
from components.settings import network_rules as rules
from tests.unit.rule_cases import Case, Changes, group, lines

VPC, SUBNET = "vpc-00000000000000001", "subnet-00000000000000001"
SUBNETS = {"us-east-1a": SUBNET, "us-east-1b": "subnet-00000000000000002"}


def existing(subnet_ids: dict[str, str]) -> Changes:
    network = {"vpcId": VPC, "subnetIds": subnet_ids}
    return {("network", "existing"): network, ("network", "cidr"): "10.7.0.0/22"}


CASES = [
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.0.0/22"},
        "gpu-training:network.cidr: 10.0.0.0/22 is too small for a public and a private subnet in every "
        "zone; "
        "take a /21 or larger, up to /16",
        {("network", "cidr"): "10.0.0.0/21"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.0.0/15"},
        "gpu-training:network.cidr: 10.0.0.0/15 is larger than AWS allows; take a /16 or smaller",
        {("network", "cidr"): "10.0.0.0/16"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "172.32.0.0/16"},
        "gpu-training:network.cidr: 172.32.0.0/16 is not private; "
        "take it from 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
        {("network", "cidr"): "172.31.0.0/16"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.7.0/20"},
        "gpu-training:network.cidr: '10.0.7.0/20' has bits set below its prefix; write the block's first "
        "address "
        "(nearest match: 10.0.0.0/20)",
        {("network", "cidr"): "10.0.16.0/20"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.0.0.0/20"},
        "gpu-training:network.cidr: '10.0.0.0.0/20' is no IPv4 block; write one such as 10.42.0.0/16",
        {},
    ),
    Case(
        rules.zones_have_room_for_their_nodes,
        {("network", "cidr"): "10.0.0.0/21", **group(zones=["us-east-1a"], maxNodes=124)},
        "gpu-training:network.cidr: 10.0.0.0/21 is too small: us-east-1a may need 124 addresses and has 123; "
        "take a larger block or fewer nodes",
        {("network", "cidr"): "10.0.0.0/21", **group(zones=["us-east-1a"], maxNodes=123)},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["us-east-1a", "us-east-2a"]},
        "gpu-training:network.availabilityZones[1]: 'us-east-2a' is no zone of us-east-1; write it like "
        "us-east-1a or use1-az1",
        {("network", "availabilityZones"): ["us-east-1f"]},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["us-east-1-atl-2a"]},
        "gpu-training:network.availabilityZones[0]: 'us-east-1-atl-2a' is a local or wavelength zone; use "
        "the "
        "region's own zones, such as us-east-1a or use1-az1: local zones have no NAT gateway and no EFA",
        {},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["us-east-1a", "us-east-1a"]},
        "gpu-training:network.availabilityZones[1]: 'us-east-1a' is there twice; name each once",
        {},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["use2-az1"]},
        "gpu-training:network.availabilityZones[0]: 'use2-az1' is no zone of us-east-1; write it like "
        "us-east-1a or use1-az1",
        {("network", "availabilityZones"): ["use1-az1", "use1-az6"]},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["use1-atl1-az1"]},
        "gpu-training:network.availabilityZones[0]: 'use1-atl1-az1' is a local or wavelength zone; use the "
        "region's own zones, such as us-east-1a or use1-az1: local zones have no NAT gateway and no EFA",
        {},
    ),
    Case(
        rules.zones_are_all_names_or_all_ids,
        {("network", "availabilityZones"): ["us-east-1a", "use1-az1"]},
        "gpu-training:network.availabilityZones[1]: 'use1-az1' is an id, 'us-east-1a' is a name; "
        "write all zones by name or all by id, here and in the groups",
        {("network", "availabilityZones"): ["use1-az1", "use1-az2"], **group(zones=["use1-az2"])},
    ),
    Case(
        rules.existing_vpc_has_a_subnet_in_each_zone,
        existing({"us-east-1a": SUBNET}),
        "gpu-training:network.existing.subnetIds: no subnet in us-east-1b; "
        "add one, or take the zone out of availabilityZones",
        existing(SUBNETS),
    ),
    Case(
        rules.existing_vpc_has_a_subnet_in_each_zone,
        existing({**SUBNETS, "us-east-1c": "subnet-00000000000000003"}),
        "gpu-training:network.existing.subnetIds.us-east-1c: 'us-east-1c' is not a zone of the network; "
        "one of us-east-1a, us-east-1b (nearest match: us-east-1b)",
        existing(SUBNETS),
    ),
    Case(
        rules.existing_vpc_has_a_subnet_in_each_zone,
        existing({"us-east-1a": SUBNET, "us-east-1b": SUBNET}),
        f"gpu-training:network.existing.subnetIds: {SUBNET} is the subnet of us-east-1a and us-east-1b; "
        "a subnet lies in one zone: name its own",
        existing(SUBNETS),
    ),
    Case(
        rules.existing_vpc_has_a_subnet_in_each_zone,
        existing({**SUBNETS, "us-east-1b": "vpc-00000000000000002"}),
        "gpu-training:network.existing.subnetIds.us-east-1b: 'vpc-00000000000000002' is no subnet id; "
        "write it like subnet-0123456789abcdef0",
        existing({**SUBNETS, "us-east-1b": "subnet-00000002"}),
    ),
    *(
        Case(
            rules.existing_vpc_keeps_its_ways_out,
            {**existing(SUBNETS), ("network", key): value},
            f"gpu-training:network.{key}: an existing VPC does not take it; remove it: that VPC has its own",
            existing(SUBNETS),
        )
        for key, value in (("nat", "single"), ("endpoints", ["ecr.api"]), ("flowLogRetentionDays", 30))
    ),
    Case(
        rules.existing_vpc_tells_its_range,
        {("network", "existing"): {"vpcId": VPC, "subnetIds": SUBNETS}},
        f"gpu-training:network.cidr: missing; write the range of {VPC}",
        existing(SUBNETS),
    ),
    Case(
        rules.cidr_is_a_private_block,
        {**existing(SUBNETS), ("network", "cidr"): "10.0.0.0/29"},
        "gpu-training:network.cidr: 10.0.0.0/29 is smaller than any VPC; write the range of the existing VPC",
        {**existing(SUBNETS), ("network", "cidr"): "100.64.0.0/24"},
    ),
    Case(
        rules.endpoint_services_are_known,
        {("network", "endpoints"): ["ecr.dkr", "ecr.apis"]},
        "gpu-training:network.endpoints[1]: 'ecr.apis' is no service with an interface endpoint "
        "(as of 2026-11-30); write the last part of its service name, such as ecr.api; suppress this for a "
        "newer one (nearest match: ecr.api)",
        {("network", "endpoints"): ["ecr.dkr", "ecr.api"], ("network", "nat"): "none"},
    ),
    Case(
        rules.endpoint_services_are_known,
        {("network", "endpoints"): ["s3"]},
        "gpu-training:network.endpoints[0]: S3 has its gateway endpoint in every stack; remove it: that one is "
        "free",
        {("network", "endpoints"): ["sts"]},
    ),
    Case(
        rules.endpoint_services_are_known,
        {("network", "endpoints"): ["sts", "sts"]},
        "gpu-training:network.endpoints[1]: 'sts' is there twice; name each once",
        {},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_refuses_with_path_fault_and_remedy(case: Case) -> None:
    assert case.line in lines(case.stack, case.refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_accepts_what_is_right(case: Case) -> None:
    assert lines(case.stack, case.accepted) == []


def test_every_rule_has_a_case() -> None:
    assert {case.rule for case in CASES} == set(rules.RULES)


def test_a_default_is_nothing_that_was_set_also_when_something_else_is_wrong() -> None:
    """Of a broken section the sound part is judged; what stands in it by default was not written."""
    found = lines("dev", {**existing(SUBNETS), ("network", "flowLogs"): 30})
    assert [line.partition(":")[2].partition(":")[0] for line in found] == ["network.flowLogs"]


def test_zone_ids_are_spelt_as_aws_spells_them() -> None:
    """The emulator has the real ids of every region."""
    for region in REGIONS:
        prefixes = {zone.zone_id.rpartition("-")[0] for zone in RegionsAndZonesBackend.zones[region]}
        assert prefixes == {rules.zone_id_prefix(region)}


def test_a_group_in_two_zones_by_id_is_no_group_for_efa() -> None:
    """eks-ml-kubeflow#77, #83 (A13): EFA over several zones finds no path; the group must have one subnet."""
    zones = ["use1-az1", "use1-az2"]
    efa = group(instanceTypes=["g6.8xlarge"], efa="on", zones=zones)
    told = lines("dev", {("network", "availabilityZones"): zones, **efa})
    assert told == [
        "gpu-training:gpuGroups[0].zones: 2 zones for a group with EFA; name one, such as [use1-az1]"
    ]


def test_the_list_of_endpoint_services_is_sound() -> None:
    names = ENDPOINT_SERVICES.names
    assert list(names) == sorted(set(names)) and len(names) > 200
    assert all(re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", name) for name in names)
    assert ENDPOINT_SERVICES.without_policies <= set(names)
    assert {"ecr.api", "ecr.dkr", "sts", "kms", "ec2"} <= set(names) and "s3" not in names


@pytest.mark.parametrize("prefix", range(14, 26))
def test_the_cidr_rule_and_the_network_plan_refuse_the_same_blocks(prefix: int) -> None:
    """The settings may not import the plan, so the limits are written in both; they must agree."""
    refused = lines("dev", {("network", "cidr"): f"10.0.0.0/{prefix}"}) != []
    try:
        plan_subnets(f"10.0.0.0/{prefix}", ["us-east-1a"])
        assert not refused
    except ValueError:
        assert refused


def test_the_settings_know_the_plans_numbers() -> None:
    assert (rules.LARGEST_VPC_PREFIX, rules.SMALLEST_VPC_PREFIX) == (LARGEST_VPC_PREFIX, SMALLEST_VPC_PREFIX)
    assert rules.PRIVATE_EXTRA_BITS == PRIVATE_EXTRA_BITS
