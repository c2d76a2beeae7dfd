"""The network's plans: what must hold for every block and every choice of zones, who may reach whom, and what
passes through endpoints.
"""

from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import IPv4Network
from itertools import combinations
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from components.catalog.endpoint_services import ENDPOINT_SERVICES
from components.compute.node_rights import node_statements
from components.names import StackNames, stack_names
from components.network.endpoint_policies import MAX_ENDPOINT_POLICY, interface_policy, s3_policy
from components.network.plan import (
    LARGEST_VPC_PREFIX,
    SMALLEST_VPC_PREFIX,
    interface_endpoints,
    node_services,
    plan_subnets,
    zone_slot,
)
from components.network.security_rules import LustreTraffic, TrafficRule, plan_rules
from components.settings import Settings, load
from tests.unit.stack_files import minimal

LETTERS = "abcdefgh"
NAMES = [f"us-east-1{letter}" for letter in LETTERS]
IDS = [f"use1-az{number}" for number in range(1, 9)]
prefixes = st.integers(LARGEST_VPC_PREFIX, SMALLEST_VPC_PREFIX)


def lists_of(zones: list[str]) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(zones), min_size=1, unique=True)


zone_lists = st.one_of(lists_of(NAMES), lists_of(IDS))
two_zone_lists = st.one_of(*(st.tuples(lists_of(kind), lists_of(kind)) for kind in (NAMES, IDS)))


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


@given(blocks(), two_zone_lists)
def test_adding_or_removing_zones_anywhere_leaves_the_others_untouched(
    cidr: str, both: tuple[list[str], list[str]]
) -> None:
    zones, other_zones = both
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


def test_names_and_ids_in_one_list_are_refused() -> None:
    """us-east-1a and use1-az1 would get the same addresses, and may even be one zone."""
    with pytest.raises(ValueError, match="some zones are names and some are ids"):
        plan_subnets("10.0.0.0/16", ["us-east-1a", "use1-az2"])


@pytest.mark.parametrize(
    "zone",
    [
        *("us-east-1-atl-1a", "us-east-1-wl1-bos-wlz-1", "us-east-1", "us-east-1z"),
        *("use1-atl1-az1", "use1-wl1-bos-wlz1", "use1-az0", "use1-az9", "use1-az10"),
    ],
)
def test_local_zones_are_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="availability zone"):
        zone_slot(zone)


def test_every_letter_has_its_own_slot() -> None:
    assert [zone_slot(f"us-gov-west-1{letter}") for letter in LETTERS] == list(range(8))


def test_every_number_of_an_id_has_its_own_slot() -> None:
    assert [zone_slot(f"apne1-az{number}") for number in range(1, 9)] == list(range(8))


def settings(network: dict[str, Any] | None = None, **changes: Any) -> Settings:
    config = minimal()
    config["network"] |= network or {}
    return load("test", {**config, **changes})


class TestTheServicesThatNodesReach:
    def test_are_those_that_user_data_agent_and_session_manager_call(self) -> None:
        assert node_services(settings()) == ("autoscaling", "logs", "monitoring", "sns", "ssm", "ssmmessages")

    def test_include_secrets_manager_where_a_run_has_secrets(self) -> None:
        assert "secretsmanager" in node_services(settings(secrets={"HF_TOKEN": "research/hugging-face"}))

    @pytest.mark.parametrize("secrets", [{}, {"HF_TOKEN": "research/hugging-face"}])
    def test_are_those_that_the_nodes_role_names_and_session_manager(self, secrets: dict[str, str]) -> None:
        """Both ways: a right without an endpoint is worth nothing without NAT, an endpoint without a right costs."""
        with_secrets = settings(secrets=secrets)
        statements = node_statements(
            stack_names(with_secrets), "trainers", "gputrain-test-trainers", "gpu-training"
        )
        called = {action.partition(":")[0] for statement in statements for action in statement["Action"]}
        by_endpoint = {"monitoring" if service == "cloudwatch" else service for service in called - {"s3"}}
        assert by_endpoint | {"ssm", "ssmmessages"} == set(node_services(with_secrets))

    def test_are_all_of_them_in_the_list_of_endpoint_services(self) -> None:
        assert set(node_services(settings(secrets={"A": "b"}))) <= set(ENDPOINT_SERVICES.names)

    @pytest.mark.parametrize(
        ("network", "endpoints"),
        [
            ({"nat": "single"}, ()),
            ({"nat": "single", "endpoints": ["ecr.dkr", "ecr.api"]}, ("ecr.api", "ecr.dkr")),
            (
                {"nat": "none", "endpoints": ["sts", "logs"]},
                ("autoscaling", "logs", "monitoring", "sns", "ssm", "ssmmessages", "sts"),
            ),
        ],
    )
    def test_have_endpoints_without_nat_and_what_is_asked_for_always(
        self, network: dict[str, Any], endpoints: tuple[str, ...]
    ) -> None:
        assert interface_endpoints(settings(network)) == endpoints

    def test_have_no_endpoint_of_ours_in_an_existing_vpc(self) -> None:
        """Not even where the validator that refuses both together is suppressed."""
        subnets = {f"us-east-1{letter}": f"subnet-0000000{letter}" for letter in "ab"}
        existing = {"vpcId": "vpc-00000001", "subnetIds": subnets}
        wanted = {"existing": existing, "cidr": "10.9.0.0/24", "nat": "none", "endpoints": ["sts"]}
        suppressed = {"existing-vpc-keeps-its-ways-out": "TICKET-7: the VPC has them"}
        assert interface_endpoints(settings(wanted, suppressValidators=suppressed)) == ()


class TestSecurityRules:
    def plan(self, lustre: LustreTraffic = "none", **changes: Any) -> tuple[TrafficRule, ...]:
        plain: dict[str, Any] = {"way_out": "world", "interface_endpoints": False, **changes}
        return plan_rules("10.42.0.0/16", 9400, lustre=lustre, **plain)

    @pytest.mark.parametrize("lustre", ["none", "tcp", "efa"])
    @pytest.mark.parametrize("way_out", ["world", "endpoints"])
    def test_each_rule_has_one_other_end_and_a_name_of_its_own(
        self, way_out: str, lustre: LustreTraffic
    ) -> None:
        rules = self.plan(lustre, way_out=way_out, interface_endpoints=True)
        assert all([rule.peer, rule.cidr, rule.to_s3 or None].count(None) == 2 for rule in rules)
        assert len({rule.role for rule in rules}) == len(rules)

    @pytest.mark.parametrize("lustre", ["none", "tcp", "efa"])
    def test_what_one_group_may_send_another_that_one_may_receive(self, lustre: LustreTraffic) -> None:
        rules = [rule for rule in self.plan(lustre) if rule.peer]
        sent = {(rule.group, rule.peer, rule.ports) for rule in rules if rule.direction == "out"}
        received = {(rule.peer, rule.group, rule.ports) for rule in rules if rule.direction == "in"}
        assert sent == received

    def test_lustre_goes_both_ways_on_its_own_ports_only(self) -> None:
        """FSx for Lustre guide: 988 and 1018 to 1023, between clients and servers and among the servers."""
        flows = {
            (rule.group, rule.peer)
            for ports in ((988, 988), (1018, 1023))
            for rule in self.plan("tcp")
            if rule.ports == ports and rule.direction == "out"
        }
        assert flows == {("nodes", "lustre"), ("lustre", "nodes"), ("lustre", "lustre")}
        ports = {rule.ports for rule in self.plan("tcp") if "lustre" in (rule.group, rule.peer)}
        assert ports == {(988, 988), (1018, 1023)}

    def test_an_efa_file_system_passes_everything_to_and_from_itself_and_its_clients(self) -> None:
        """aws-parallelcluster#7616 (E5): without this FSx refuses to create it."""
        ours = {(r.group, r.direction, r.peer) for r in self.plan("efa") if "lustre" in (r.group, r.peer)}
        assert ours == {
            (group, direction, peer)
            for group, peer in (("lustre", "lustre"), ("lustre", "nodes"), ("nodes", "lustre"))
            for direction in ("in", "out")
        }
        assert all(rule.ports is None for rule in self.plan("efa") if "lustre" in (rule.group, rule.peer))


def statements(policy: str | None) -> list[dict[str, Any]]:
    assert policy is not None
    return json.loads(policy)["Statement"]


class TestEndpointPolicies:
    def names(self, datasets: int = 1, letters: int = 6) -> StackNames:
        return replace(
            stack_names(settings()),
            dataset_buckets={f"{n}": f"{n:0{letters}d}" for n in range(datasets)},
        )

    def test_s3_is_open_for_every_bucket_of_the_stack_to_this_account_alone(self) -> None:
        names = self.names(datasets=3)
        own, *_ = statements(s3_policy(names))
        buckets = [names.artifacts_bucket, *names.dataset_buckets.values()]
        assert own["Resource"] == [f"arn:aws:s3:::{b}{end}" for b in buckets for end in ("", "/*")]
        assert own["Condition"]["StringEquals"] == {
            "aws:PrincipalAccount": ["123456789012"],
            "aws:ResourceAccount": ["123456789012"],
        }

    def test_s3_is_open_for_the_buckets_of_aws_that_nodes_need_to_read(self) -> None:
        _, readable, listed = statements(s3_policy(self.names()))
        assert readable["Action"] == ["s3:GetObject"] and "Condition" not in readable
        assert {
            "arn:aws:s3:::prod-us-east-1-starport-layer-bucket/*",
            "arn:aws:s3:::al2023-repos-us-east-1-de612dc2/*",
            "arn:aws:s3:::amazon-ssm-us-east-1/*",
            "arn:aws:s3:::aws-ssm-us-east-1/*",
            "arn:aws:s3:::patch-baseline-snapshot-us-east-1/*",
            "arn:aws:s3:::ec2-linux-nvidia-drivers/*",
        } <= set(readable["Resource"])
        assert (listed["Action"], listed["Resource"]) == (
            ["s3:ListBucket"],
            ["arn:aws:s3:::ec2-linux-nvidia-drivers"],
        )

    def test_s3_is_closed_for_every_other_bucket(self) -> None:
        """No statement says * for a bucket's name."""
        resources = [r for s in statements(s3_policy(self.names())) for r in s["Resource"]]
        assert not [r for r in resources if "*" in r.removesuffix("/*")]

    @example(datasets=100, letters=63, region="us-gov-west-1")
    @given(st.integers(0, 100), st.integers(3, 63), st.sampled_from(["us-east-1", "us-gov-west-1"]))
    def test_the_policy_of_a_hundred_datasets_fits(self, datasets: int, letters: int, region: str) -> None:
        """More than a node's role can name, which has its own validator."""
        names = replace(self.names(datasets, letters), region=region, artifacts_bucket="a" * 63)
        assert len(s3_policy(names)) <= MAX_ENDPOINT_POLICY

    def test_an_interface_endpoint_serves_this_account_alone(self) -> None:
        (only,) = statements(interface_policy("logs", "123456789012"))
        assert only["Condition"] == {"StringEquals": {"aws:PrincipalAccount": ["123456789012"]}}

    def test_a_service_that_takes_no_policy_gets_none(self) -> None:
        assert interface_policy("email-smtp", "123456789012") is None

    def test_all_that_nodes_call_takes_one(self) -> None:
        assert not ENDPOINT_SERVICES.without_policies & set(node_services(settings(secrets={"A": "b"})))
