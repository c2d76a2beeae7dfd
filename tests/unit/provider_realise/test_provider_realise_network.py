"""Local mode: networks are made in the AWS emulation, follow changes, and leave nothing behind."""

from __future__ import annotations

import json
from typing import Any

from tests.unit.emulated_stack import REGION, TRUST, Made, Stack, network


def test_a_network_is_made_and_leaves_nothing_behind(stack: Stack) -> None:
    vpc, subnet, _ = network(stack)
    gateway = stack.make("aws:ec2/internetGateway:InternetGateway", "igw", vpcId=vpc.id)
    address = stack.make("aws:ec2/eip:Eip", "eip", domain="vpc")
    nat = stack.make("aws:ec2/natGateway:NatGateway", "nat", allocationId=address.id, subnetId=subnet.id)
    table = stack.make("aws:ec2/routeTable:RouteTable", "table", vpcId=vpc.id, tags={"Name": "private"})
    other = stack.make("aws:ec2/routeTable:RouteTable", "other", vpcId=vpc.id)
    stack.make(
        "aws:ec2/route:Route",
        "out",
        routeTableId=table.id,
        destinationCidrBlock="0.0.0.0/0",
        gatewayId=gateway.id,
    )
    stack.make(
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "assoc",
        routeTableId=table.id,
        subnetId=subnet.id,
    )
    endpoint = stack.make(
        "aws:ec2/vpcEndpoint:VpcEndpoint",
        "s3",
        vpcId=vpc.id,
        serviceName=f"com.amazonaws.{REGION}.s3",
        vpcEndpointType="Gateway",
        routeTableIds=[table.id],
    )
    ec2 = stack.clients("ec2")
    assert ec2.describe_vpcs(VpcIds=[vpc.id])["Vpcs"][0]["Tags"] == [{"Key": "team", "Value": "x"}]
    assert subnet["availabilityZone"] == f"{REGION}b"
    assert address["publicIp"] == ec2.describe_addresses()["Addresses"][0]["PublicIp"]
    assert ec2.describe_vpc_endpoints()["VpcEndpoints"][0]["RouteTableIds"] == [table.id]
    assert endpoint["prefixListId"].startswith("pl-")
    for name, target in (("out", {"natGatewayId": nat.id}),):
        stack.change(name, routeTableId=table.id, destinationCidrBlock="0.0.0.0/0", **target)
    stack.change("assoc", routeTableId=other.id, subnetId=subnet.id)
    stack.change("table", vpcId=vpc.id, tags={"Name": "renamed"})
    tables = {t["RouteTableId"]: t for t in ec2.describe_route_tables()["RouteTables"]}
    assert [r["NatGatewayId"] for r in tables[table.id]["Routes"] if "NatGatewayId" in r] == [nat.id]
    assert {t["Key"]: t["Value"] for t in tables[table.id]["Tags"]} == {"Name": "renamed", "team": "x"}
    assert [a["SubnetId"] for a in tables[other.id]["Associations"] if "SubnetId" in a] == [subnet.id]


def test_a_subnet_is_made_in_the_zone_of_an_id(stack: Stack) -> None:
    vpc, *_ = network(stack)
    subnet = stack.make(
        *("aws:ec2/subnet:Subnet", "by-id"),
        vpcId=vpc.id,
        cidrBlock="10.0.200.0/24",
        availabilityZoneId=zone_ids(stack)[f"{REGION}a"],
    )
    assert subnet["availabilityZone"] == f"{REGION}a"


def test_an_endpoint_has_its_policy_from_the_start_and_follows_its_changes(stack: Stack) -> None:
    vpc, *_ = network(stack)
    wanted = {
        "vpcId": vpc.id,
        "serviceName": f"com.amazonaws.{REGION}.s3",
        "vpcEndpointType": "Gateway",
        "routeTableIds": [stack.make("aws:ec2/routeTable:RouteTable", "table", vpcId=vpc.id).id],
    }
    endpoint = stack.make("aws:ec2/vpcEndpoint:VpcEndpoint", "s3", **wanted, policy=policy("one"))
    assert policy_of(stack, endpoint) == policy("one")
    stack.change("s3", **wanted, policy=policy("two"))
    assert policy_of(stack, endpoint) == policy("two")


def policy(bucket: str) -> str:
    statement = {"Effect": "Allow", "Principal": "*", "Action": "s3:*", "Resource": f"arn:aws:s3:::{bucket}"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def policy_of(stack: Stack, endpoint: Made) -> str:
    ec2 = stack.clients("ec2")
    return ec2.describe_vpc_endpoints(VpcEndpointIds=[endpoint.id])["VpcEndpoints"][0]["PolicyDocument"]


def zone_ids(stack: Stack) -> dict[str, str]:
    zones = stack.clients("ec2").describe_availability_zones()["AvailabilityZones"]
    return {zone["ZoneName"]: zone["ZoneId"] for zone in zones}


def test_a_security_group_starts_with_no_rule_and_rules_reach_it_both_ways(stack: Stack) -> None:
    vpc, _, group = network(stack)
    ec2 = stack.clients("ec2")
    assert ec2.describe_security_group_rules(Filters=_of(group))["SecurityGroupRules"] == []
    for direction in ("Ingress", "Egress"):
        stack.make(
            f"aws:vpc/securityGroup{direction}Rule:SecurityGroup{direction}Rule",
            f"self-{direction}",
            securityGroupId=group.id,
            referencedSecurityGroupId=group.id,
            ipProtocol="-1",
            description="EFA",
        )
    stack.make(
        "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
        "https",
        securityGroupId=group.id,
        cidrIpv4="0.0.0.0/0",
        ipProtocol="tcp",
        fromPort=443,
        toPort=443,
    )
    rules = ec2.describe_security_group_rules(Filters=_of(group))["SecurityGroupRules"]
    own = [
        rule["IsEgress"] for rule in rules if rule.get("ReferencedGroupInfo", {}).get("GroupId") == group.id
    ]
    assert sorted(own) == [False, True]
    assert [(r["CidrIpv4"], r["FromPort"]) for r in rules if r.get("CidrIpv4")] == [("0.0.0.0/0", 443)]
    default = stack.make("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", "default", vpcId=vpc.id)
    assert default.id == vpc["defaultSecurityGroupId"]
    assert ec2.describe_security_group_rules(Filters=_of(default))["SecurityGroupRules"] == []


def _of(group: Made) -> list[dict[str, Any]]:
    return [{"Name": "group-id", "Values": [group.id]}]


def test_a_flow_log_writes_to_its_log_group(stack: Stack) -> None:
    vpc, _, _ = network(stack)
    role = stack.make("aws:iam/role:Role", "role", assumeRolePolicy=TRUST)
    logs = stack.make("aws:cloudwatch/logGroup:LogGroup", "logs", name="/gpu/flow")
    stack.make(
        "aws:ec2/flowLog:FlowLog",
        "flow",
        vpcId=vpc.id,
        trafficType="ALL",
        iamRoleArn=role["arn"],
        logDestinationType="cloud-watch-logs",
        logDestination=logs["arn"],
    )
    assert stack.clients("ec2").describe_flow_logs()["FlowLogs"][0]["LogGroupName"] == "/gpu/flow"
