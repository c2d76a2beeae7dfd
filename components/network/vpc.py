"""A VPC of the stack's own: subnets, routes, and NAT as chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from components.names import StackNames

from .plan import is_zone_id, nat_zones, plan_subnets
from .security_rules import WORLD


@dataclass
class Vpc:
    """What was declared; ``ready`` must exist before a node boots."""

    vpc_id: pulumi.Output[str]
    private_subnet_ids: dict[str, pulumi.Output[str]] = field(default_factory=dict)  # by zone
    public_subnet_ids: dict[str, pulumi.Output[str]] = field(default_factory=dict)  # by zone
    private_tables: dict[str, aws.ec2.RouteTable] = field(default_factory=dict)  # by zone
    tables: list[aws.ec2.RouteTable] = field(default_factory=list)  # all of them
    ready: list[pulumi.Resource] = field(default_factory=list)


def name_tag(names: StackNames, role: str) -> dict[str, str]:
    """The tag that the console shows as a resource's name."""
    return {"Name": f"{names.base_name}-{role}"}


def declare_vpc(
    name: str,
    names: StackNames,
    cidr_block: str,
    availability_zones: Sequence[str],
    nat: str,
    parent: pulumi.Resource,
) -> Vpc:
    """A public and a private subnet in each zone, named or by id; the first zone has the single NAT gateway."""
    child = pulumi.ResourceOptions(parent=parent)
    vpc = aws.ec2.Vpc(
        f"{name}-vpc",
        cidr_block=cidr_block,
        enable_dns_support=True,
        enable_dns_hostnames=True,  # private DNS of interface endpoints needs both
        tags=name_tag(names, "vpc"),
        opts=child,
    )
    # Whoever forgets to name a group gets one that lets nothing through.
    aws.ec2.DefaultSecurityGroup(
        f"{name}-default", vpc_id=vpc.id, ingress=[], egress=[], tags=name_tag(names, "unused"), opts=child
    )
    gateway = aws.ec2.InternetGateway(
        f"{name}-internet", vpc_id=vpc.id, tags=name_tag(names, "internet"), opts=child
    )
    public_table = aws.ec2.RouteTable(
        f"{name}-public", vpc_id=vpc.id, tags=name_tag(names, "public"), opts=child
    )
    internet_route = aws.ec2.Route(
        f"{name}-public-internet",
        route_table_id=public_table.id,
        destination_cidr_block=WORLD,
        gateway_id=gateway.id,
        opts=child,
    )
    made = Vpc(vpc.id, tables=[public_table])
    for subnets in plan_subnets(cidr_block, availability_zones):
        zone = subnets.zone
        public, _ = _subnet(
            name, names, made.vpc_id, "public", zone, subnets.public_cidr, public_table, child
        )
        # A table of its own for each zone: another choice of NAT then changes a route and no subnet.
        table = aws.ec2.RouteTable(
            f"{name}-private-{zone}", vpc_id=vpc.id, tags=name_tag(names, f"private-{zone}"), opts=child
        )
        private, association = _subnet(
            name, names, made.vpc_id, "private", zone, subnets.private_cidr, table, child
        )
        made.public_subnet_ids[zone], made.private_subnet_ids[zone] = public.id, private.id
        made.private_tables[zone] = table
        made.tables.append(table)
        made.ready.append(association)
    _nat(name, names, made, nat_zones(nat, availability_zones), internet_route, parent)
    return made


def _subnet(
    name: str,
    names: StackNames,
    vpc_id: pulumi.Output[str],
    kind: str,
    zone: str,
    cidr_block: str,
    table: aws.ec2.RouteTable,
    child: pulumi.ResourceOptions,
) -> tuple[aws.ec2.Subnet, aws.ec2.RouteTableAssociation]:
    subnet = aws.ec2.Subnet(
        f"{name}-{kind}-{zone}",
        vpc_id=vpc_id,
        availability_zone=None if is_zone_id(zone) else zone,
        availability_zone_id=zone if is_zone_id(zone) else None,
        cidr_block=cidr_block,
        map_public_ip_on_launch=False,  # also in public ones: NAT gateways bring their own address
        tags=name_tag(names, f"{kind}-{zone}"),
        opts=child,
    )
    association = aws.ec2.RouteTableAssociation(
        f"{name}-{kind}-{zone}", subnet_id=subnet.id, route_table_id=table.id, opts=child
    )
    return subnet, association


def _nat(
    name: str,
    names: StackNames,
    made: Vpc,
    zones: Sequence[str],
    internet_route: aws.ec2.Route,
    parent: pulumi.Resource,
) -> None:
    """NAT gateways in these zones, and each private table's route to its own zone's one or to the first."""
    child = pulumi.ResourceOptions(parent=parent)
    gateways: dict[str, aws.ec2.NatGateway] = {}
    for zone in zones:
        address = aws.ec2.Eip(
            f"{name}-nat-{zone}", domain="vpc", tags=name_tag(names, f"nat-{zone}"), opts=child
        )
        gateways[zone] = aws.ec2.NatGateway(
            f"{name}-nat-{zone}",
            allocation_id=address.id,
            subnet_id=made.public_subnet_ids[zone],
            tags=name_tag(names, f"nat-{zone}"),
            # Its address cannot be on two gateways at once, so a replacement waits for the old one to go.
            opts=pulumi.ResourceOptions(
                parent=parent, depends_on=[internet_route], delete_before_replace=True
            ),
        )
    for zone, table in made.private_tables.items() if gateways else ():
        route = aws.ec2.Route(
            f"{name}-private-{zone}-nat",
            route_table_id=table.id,
            destination_cidr_block=WORLD,
            nat_gateway_id=gateways.get(zone, gateways[zones[0]]).id,
            opts=child,
        )
        made.ready.append(route)
