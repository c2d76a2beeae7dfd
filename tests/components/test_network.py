"""The network: who can reach whom."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from components.network.network import Network, network_args
from components.network.plan import node_services
from components.settings import Settings, load
from tests.components.kit import Recording, Registered, record, record_program
from tests.unit.stack_files import minimal

SUBNET = "aws:ec2/subnet:Subnet"
ROUTE = "aws:ec2/route:Route"
NAT = "aws:ec2/natGateway:NatGateway"
ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]

ALL_AMONG_NODES = {"ipProtocol": "-1", "referencedSecurityGroupId": "net-nodes-id"}


def settings_with(network: dict[str, Any], **others: Any) -> Settings:
    config = minimal()
    config["network"] = {"cidr": "10.42.0.0/16", "availabilityZones": ZONES, **network}
    return load("test", {**config, **others})


def network(lustre: dict[str, Any] | None = None, **changes: Any) -> Recording:
    return _network(json.dumps(changes, sort_keys=True), json.dumps(lustre))


@cache  # a recording is only read
def _network(changes: str, lustre: str) -> Recording:
    settings = settings_with(json.loads(changes), lustre=json.loads(lustre))
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

    def test_zones_by_id_are_asked_for_by_id(self) -> None:
        subnets = network(availabilityZones=["use1-az4", "use1-az6"]).of_type(SUBNET)
        assert {(s.name, s.inputs["availabilityZoneId"]) for s in subnets} == {
            (f"net-{kind}-use1-az{n}", f"use1-az{n}") for kind in ("public", "private") for n in (4, 6)
        }
        assert not any("availabilityZone" in s.inputs for s in subnets)

    def test_another_zone_by_id_changes_no_subnet_that_is_there(self) -> None:
        before = {s.name: s.inputs for s in network(availabilityZones=["use1-az4"]).of_type(SUBNET)}
        after = {
            s.name: s.inputs for s in network(availabilityZones=["use1-az1", "use1-az4"]).of_type(SUBNET)
        }
        assert before.items() <= after.items() and len(after) == len(before) + 2

    def test_all_lie_in_the_one_vpc(self) -> None:
        assert {s.inputs["vpcId"] for s in network().of_type(SUBNET)} == {"net-vpc-id"}

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
        services = node_services(settings_with({}))
        assert {e.inputs["serviceName"].rpartition(".")[2] for e in endpoints} == set(services)
        assert all(e.inputs["privateDnsEnabled"] and len(e.inputs["subnetIds"]) == 3 for e in endpoints)

    def test_further_services_have_theirs_with_and_without_nat(self) -> None:
        for nat in ("none", "single"):
            endpoint = network(nat=nat, endpoints=["ecr.api"]).one(ENDPOINT, "net-ecr.api").inputs
            assert endpoint["serviceName"] == "com.amazonaws.us-east-1.ecr.api"
            assert endpoint["securityGroupIds"] == ["net-endpoints-id"]

    def test_endpoints_answer_https_from_the_vpc(self) -> None:
        rules = rules_of(network(endpoints=["ecr.api"]), INGRESS, "net-endpoints-id")
        assert rules == [{"ipProtocol": "tcp", "cidrIpv4": "10.42.0.0/16", "fromPort": 443, "toPort": 443}]

    def test_each_endpoint_is_bound_to_this_account(self) -> None:
        for endpoint in network(nat="none", endpoints=["ecr.api"]).of_type(ENDPOINT):
            first = endpoint.policy()[0]
            assert first["Condition"]["StringEquals"]["aws:PrincipalAccount"] == ["123456789012"]

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
        for group in recording.of_type(GROUP):
            assert "ingress" not in group.inputs and "egress" not in group.inputs

    def test_the_default_group_lets_nothing_through(self) -> None:
        default = network().one("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup").inputs
        assert default["ingress"] == [] and default["egress"] == []


LUSTRE = {"zone": "us-east-1a", "capacityGib": 1200}
EXISTING = {
    "vpcId": "vpc-0123456789abcdef0",
    "subnetIds": {zone: f"subnet-0123456789abcde0{n}" for n, zone in enumerate(ZONES)},
}


class TestLustre:
    def test_has_a_group_of_its_own_where_there_is_a_file_system(self) -> None:
        made: list[Network] = []
        recording = record(
            lambda: made.append(Network("net", network_args(settings_with({}, lustre=LUSTRE))))
        )
        assert made[0].lustre_security_group_id is not None
        assert recording.one(GROUP, "net-lustre").inputs["vpcId"] == "net-vpc-id"

    def test_has_none_where_there_is_not(self) -> None:
        made: list[Network] = []
        recording = record(lambda: made.append(Network("net", network_args(settings_with({})))))
        assert made[0].lustre_security_group_id is None
        assert [group.name for group in recording.of_type(GROUP)] == ["net-nodes"]

    def test_nodes_and_file_system_reach_each_other_on_lustres_ports(self) -> None:
        recording = network(lustre=LUSTRE)
        for type_, group, other in (
            *((type_, "nodes", "lustre") for type_ in (INGRESS, EGRESS)),
            *((type_, "lustre", other) for type_ in (INGRESS, EGRESS) for other in ("nodes", "lustre")),
        ):
            ports = {
                (rule["fromPort"], rule["toPort"])
                for rule in rules_of(recording, type_, f"net-{group}-id")
                if rule.get("referencedSecurityGroupId") == f"net-{other}-id" and "fromPort" in rule
            }
            assert ports == {(988, 988), (1018, 1023)}

    def test_with_efa_all_traffic_passes_and_among_the_servers_too(self) -> None:
        recording = network(lustre={**LUSTRE, "efa": True})
        for type_ in (INGRESS, EGRESS):
            rules = rules_of(recording, type_, "net-lustre-id")
            assert {(rule["ipProtocol"], rule["referencedSecurityGroupId"]) for rule in rules} == {
                ("-1", "net-nodes-id"),
                ("-1", "net-lustre-id"),
            }


class TestAnExistingVpc:
    def test_gets_the_nodes_security_group_and_its_rules_and_nothing_else(self) -> None:
        assert {resource.type for resource in network(existing=EXISTING).custom()} == {GROUP, INGRESS, EGRESS}
        assert network(existing=EXISTING).one(GROUP).inputs["vpcId"] == EXISTING["vpcId"]

    def test_gives_its_subnets_to_the_groups_by_zone(self) -> None:
        made: list[Network] = []
        recording = record(
            lambda: made.append(Network("net", network_args(settings_with({"existing": EXISTING}))))
        )
        (component,) = [r for r in recording.resources if r.is_component]
        assert set(made[0].private_subnet_ids) == set(ZONES)
        assert component.urn in recording.finished

    def test_is_left_by_https_since_its_way_to_s3_is_not_known(self) -> None:
        rules = rules_of(network(existing=EXISTING), EGRESS, "net-nodes-id")
        assert {"ipProtocol": "tcp", "cidrIpv4": "0.0.0.0/0", "fromPort": 443, "toPort": 443} in rules

    def test_reads_the_metrics_from_its_own_range(self) -> None:
        rules = rules_of(network(existing=EXISTING, cidr="10.7.0.0/22"), INGRESS, "net-nodes-id")
        assert {rule["cidrIpv4"] for rule in rules if "cidrIpv4" in rule} == {"10.7.0.0/22"}

    def test_takes_a_file_system_too(self) -> None:
        recording = network(existing=EXISTING, lustre=LUSTRE)
        assert recording.one(GROUP, "net-lustre").inputs["vpcId"] == EXISTING["vpcId"]


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


@pytest.mark.parametrize("nat", ["none", "single"])
def test_who_boots_a_node_can_wait_for_every_way_it_needs(nat: str) -> None:
    """awsome-distributed-ai#632 (E6): a mount at boot raced with the network. Routes, endpoints and the file
    system's rules are there before the first node is.
    """
    made: list[Network] = []
    settings = settings_with({"nat": nat}, lustre=LUSTRE)
    recording = record(lambda: made.append(Network("net", network_args(settings))))
    waited_for = {resource._name for resource in made[0].ready}
    needed: list[Registered] = [
        *recording.of_type(ENDPOINT),
        *recording.of_type(INGRESS),
        *recording.of_type(EGRESS),
        *(route for route in recording.of_type(ROUTE) if "private" in route.name),
    ]
    assert {resource.name for resource in needed} <= waited_for


def test_no_call_of_a_running_node_is_denied_before_its_endpoint_is_there() -> None:
    """A stack that goes from NAT to endpoints has nodes, and their role then denies what comes by NAT."""
    recording = record_program("test", {**minimal(), "network": {**minimal()["network"], "nat": "none"}})
    policy = recording.one("aws:iam/rolePolicy:RolePolicy", "trainers-node-policy")
    assert {endpoint.name for endpoint in recording.of_type(ENDPOINT)} <= policy.depends_on


def template_of(**group: Any) -> tuple[Recording, dict[str, Any]]:
    """The program with one group, and that group's launch template."""
    config = minimal()
    config["gpuGroups"][0] |= {"zones": ["us-east-1a"], **group}
    recording = record_program("test", config)
    return recording, recording.one("aws:ec2/launchTemplate:LaunchTemplate").inputs


class TestPublicReports:
    def test_nodes_of_many_interfaces_have_no_public_address_and_one_card_each(self) -> None:
        """aws-ofi-nccl#53 = libfabric#6 (A9): p4d with several EFAs needs card indices, and EC2 gives no public
        address to more than one interface. Nodes live in subnets that map none.
        """
        recording, template = template_of(instanceTypes=["p4d.24xlarge"])
        interfaces = template["networkInterfaces"]
        assert len(interfaces) > 4
        assert len({(i["networkCardIndex"], i["deviceIndex"]) for i in interfaces}) == len(interfaces)
        assert {i.get("associatePublicIpAddress") in (False, "false") for i in interfaces} == {True}
        assert {s.inputs["mapPublicIpOnLaunch"] for s in recording.of_type(SUBNET)} == {False}

    def test_only_the_group_names_subnets(self) -> None:
        """aws-efa-eks#19 (A11): a subnet inside a template's interface is refused where a group supplies it."""
        recording, template = template_of(instanceTypes=["p4d.24xlarge"])
        assert not any("subnetId" in interface for interface in template["networkInterfaces"])
        group = recording.one("aws:autoscaling/group:Group").inputs
        assert group["vpcZoneIdentifiers"] == ["network-private-us-east-1a-id"]

    def test_a_group_with_efa_lies_in_one_subnet(self) -> None:
        """eks-ml-kubeflow#77, #83 (A13): EFA over several zones. Two zones are refused; see the rules' tests."""
        recording, _ = template_of(instanceTypes=["g6.8xlarge"], efa="on")
        assert len(recording.one("aws:autoscaling/group:Group").inputs["vpcZoneIdentifiers"]) == 1
