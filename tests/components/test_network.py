"""The network: who can reach whom."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from components.network.network import NODE_SERVICES, Network, network_args
from components.settings import load
from tests.components.kit import Recording, Registered, record
from tests.unit.stack_files import minimal

SUBNET = "aws:ec2/subnet:Subnet"
ROUTE = "aws:ec2/route:Route"
NAT = "aws:ec2/natGateway:NatGateway"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]

ALL_AMONG_NODES = {"ipProtocol": "-1", "referencedSecurityGroupId": "net-nodes-id"}


def network(**changes: Any) -> Recording:
    return _network(json.dumps(changes, sort_keys=True))


@cache  # a recording is only read
def _network(changes: str) -> Recording:
    config = minimal()
    config["network"] = {"cidr": "10.42.0.0/16", "availabilityZones": ZONES, **json.loads(changes)}
    settings = load("test", config)
    recording = record(lambda: Network("net", network_args(settings)))
    recording.assert_sound()
    return recording


def rules_of(recording: Recording, type_: str, group: str) -> list[dict[str, Any]]:
    """The rules of a security group without what says whose they are."""
    mine = [rule.inputs for rule in recording.of_type(type_) if rule.inputs["securityGroupId"] == group]
    return [{k: v for k, v in rule.items() if k not in ("securityGroupId", "description")} for rule in mine]


def routes_to_the_world(recording: Recording) -> dict[str, str]:
    """Route table -> gateway of its route to 0.0.0.0/0."""
    return {
        route.inputs["routeTableId"]: route.inputs.get("natGatewayId") or route.inputs["gatewayId"]
        for route in recording.of_type(ROUTE)
        if route.inputs["destinationCidrBlock"] == "0.0.0.0/0"
    }


class TestSubnets:
    def test_every_zone_has_a_public_and_a_private_one(self) -> None:
        recording = network()
        assert {(s.name, s.inputs["availabilityZone"]) for s in recording.of_type(SUBNET)} == {
            (f"net-{kind}-{zone}", zone) for kind in ("public", "private") for zone in ZONES
        }

    def test_no_subnet_hands_out_public_addresses(self) -> None:
        assert {s.inputs["mapPublicIpOnLaunch"] for s in network().of_type(SUBNET)} == {False}

    def test_another_zone_changes_no_subnet_that_is_there(self) -> None:
        def inputs(zones: list[str]) -> dict[str, Any]:
            return {s.name: s.inputs for s in network(availabilityZones=zones).of_type(SUBNET)}

        before, after = (
            inputs(["us-east-1b", "us-east-1d"]),
            inputs(["us-east-1a", "us-east-1d", "us-east-1b"]),
        )
        assert before.items() <= after.items() and len(after) == len(before) + 2

    def test_names_resolve_inside_the_vpc(self) -> None:
        vpc = network().one("aws:ec2/vpc:Vpc").inputs
        assert vpc["enableDnsSupport"] and vpc["enableDnsHostnames"] and vpc["cidrBlock"] == "10.42.0.0/16"


class TestTheWayOut:
    def test_without_nat_private_subnets_have_no_route_to_the_world(self) -> None:
        recording = network(nat="none")
        assert not recording.of_type(NAT)
        assert routes_to_the_world(recording) == {"net-public-id": "net-internet-id"}

    def test_a_single_nat_gateway_stands_in_the_first_zone_and_serves_all(self) -> None:
        recording = network(nat="single", availabilityZones=["us-east-1c", "us-east-1a"])
        assert recording.one(NAT).inputs["subnetId"] == "net-public-us-east-1c-id"
        assert routes_to_the_world(recording) == {
            "net-public-id": "net-internet-id",
            "net-private-us-east-1c-id": "net-nat-us-east-1c-id",
            "net-private-us-east-1a-id": "net-nat-us-east-1c-id",
        }

    def test_per_az_no_zone_depends_on_another(self) -> None:
        routes = routes_to_the_world(network(nat="per-az"))
        assert {table: gateway for table, gateway in routes.items() if "private" in table} == {
            f"net-private-{zone}-id": f"net-nat-{zone}-id" for zone in ZONES
        }

    @pytest.mark.parametrize("nat", ["none", "single", "per-az"])
    def test_s3_is_always_reached_through_the_gateway_endpoint_of_every_table(self, nat: str) -> None:
        endpoint = network(nat=nat).one(ENDPOINT, "net-s3").inputs
        assert (
            endpoint["vpcEndpointType"] == "Gateway"
            and endpoint["serviceName"] == "com.amazonaws.us-east-1.s3"
        )
        assert set(endpoint["routeTableIds"]) == {"net-public-id"} | {
            f"net-private-{zone}-id" for zone in ZONES
        }

    def test_without_nat_the_services_that_nodes_call_have_endpoints(self) -> None:
        endpoints = [e for e in network(nat="none").of_type(ENDPOINT) if e.name != "net-s3"]
        assert {e.inputs["serviceName"].rpartition(".")[2] for e in endpoints} == set(NODE_SERVICES)
        assert all(e.inputs["privateDnsEnabled"] and len(e.inputs["subnetIds"]) == 3 for e in endpoints)

    def test_with_nat_there_are_none_to_pay_for(self) -> None:
        assert len(network(nat="single").of_type(ENDPOINT)) == 1


class TestTheNodesSecurityGroup:
    def test_nodes_may_send_each_other_anything_both_ways_as_efa_demands(self) -> None:
        recording = network()
        assert ALL_AMONG_NODES in rules_of(recording, INGRESS, "net-nodes-id")
        assert ALL_AMONG_NODES in rules_of(recording, EGRESS, "net-nodes-id")

    def test_beside_that_only_the_metrics_port_is_open_and_only_to_the_vpc(self) -> None:
        rules = rules_of(network(), INGRESS, "net-nodes-id")
        rules.remove(ALL_AMONG_NODES)
        assert rules == [{"ipProtocol": "tcp", "cidrIpv4": "10.42.0.0/16", "fromPort": 9400, "toPort": 9400}]

    def test_with_nat_nodes_reach_https_anywhere(self) -> None:
        rules = rules_of(network(), EGRESS, "net-nodes-id")
        rules.remove(ALL_AMONG_NODES)
        assert rules == [{"ipProtocol": "tcp", "cidrIpv4": "0.0.0.0/0", "fromPort": 443, "toPort": 443}]

    def test_without_nat_they_reach_the_endpoints_and_s3_and_nothing_else(self) -> None:
        rules = rules_of(network(nat="none"), EGRESS, "net-nodes-id")
        rules.remove(ALL_AMONG_NODES)
        https = {"ipProtocol": "tcp", "fromPort": 443, "toPort": 443}
        assert sorted(rules, key=str) == sorted(
            [{**https, "cidrIpv4": "10.42.0.0/16"}, {**https, "prefixListId": "pl-net-s3"}], key=str
        )

    @pytest.mark.parametrize("nat", ["none", "single"])
    def test_nothing_at_all_comes_in_from_the_world(self, nat: str) -> None:
        for rule in network(nat=nat).of_type(INGRESS):
            assert rule.inputs.get("cidrIpv4", "10.42.0.0/16") == "10.42.0.0/16"
            assert "cidrIpv6" not in rule.inputs and rule.inputs.get("fromPort") != 22

    def test_rules_are_resources_of_their_own(self) -> None:
        recording = network(nat="none")
        for group in recording.of_type("aws:ec2/securityGroup:SecurityGroup"):
            assert "ingress" not in group.inputs and "egress" not in group.inputs

    def test_the_default_group_lets_nothing_through(self) -> None:
        default = network().one("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup").inputs
        assert default["ingress"] == [] and default["egress"] == []


class TestFlowLogs:
    def test_there_are_none_unless_asked_for(self) -> None:
        assert not network().of_type("aws:ec2/flowLog:FlowLog")

    def test_all_flows_are_kept_for_as_long_as_asked(self) -> None:
        recording = network(flowLogRetentionDays=90)
        assert recording.one("aws:cloudwatch/logGroup:LogGroup").inputs["retentionInDays"] == 90
        assert recording.one("aws:ec2/flowLog:FlowLog").inputs["trafficType"] == "ALL"

    def test_the_role_may_write_to_that_log_group_alone_on_this_accounts_behalf(self) -> None:
        recording = network(flowLogRetentionDays=90)
        (trust,) = recording.one("aws:iam/role:Role").policy("assumeRolePolicy")
        assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": ["123456789012"]}}
        (statement,) = recording.one("aws:iam/rolePolicy:RolePolicy").policy()
        arn = "arn:aws:logs:us-east-1:123456789012:log-group:/gputrain-test/flow-logs"
        assert statement["Resource"] == [arn, f"{arn}:*"]


def test_who_boots_a_node_can_wait_for_every_way_it_needs() -> None:
    made: list[Network] = []
    config = minimal()
    recording = record(lambda: made.append(Network("net", network_args(load("test", config)))))
    waited_for = {resource._name for resource in made[0].ready}
    needed: list[Registered] = [
        *recording.of_type(ENDPOINT),
        *recording.of_type(INGRESS),
        *recording.of_type(EGRESS),
        *(route for route in recording.of_type(ROUTE) if "private" in route.name),
    ]
    assert {resource.name for resource in needed} <= waited_for
