"""The network a training cluster lives in."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.names import StackNames, stack_names
from components.settings import Settings

from .flow_logs import declare_flow_logs
from .plan import NODE_SERVICES, plan_subnets

WORLD = "0.0.0.0/0"
HTTPS_PORT = 443


@dataclass(frozen=True)
class NetworkArgs:
    """What a network is made of; every value is plain, so that previews show and policies judge it."""

    names: StackNames
    """Where the network lives and what its parts are called."""

    cidr_block: str
    """The VPC's IPv4 block, /16 to /21."""

    availability_zones: list[str]
    """Names of regional zones, such as us-east-1a. A zone's letter fixes its subnets. The first one holds the
    single NAT gateway, so that moving another zone to the front replaces that gateway.
    """

    nat: str
    """none: nodes reach AWS's own services through endpoints and nothing else. single: one NAT gateway in the
    first zone, on which all zones depend. per-az: one a zone, so that no zone depends on another and none
    pays for traffic between zones.
    """

    metrics_port: int
    """TCP port of the node's metrics exporter, open to the VPC's addresses."""

    flow_log_retention_days: int | None = None
    """Days that the log of all flows is kept. None: no flow logs."""

    permission_boundary_arn: str | None = None
    """Boundary of the role that writes the flow logs. None: no boundary."""


def network_args(settings: Settings) -> NetworkArgs:
    """The network that the settings ask for."""
    return NetworkArgs(
        names=stack_names(settings),
        cidr_block=settings.network.cidr,
        availability_zones=settings.network.availability_zones,
        nat=settings.network.nat,
        metrics_port=settings.monitoring.metrics_port,
        flow_log_retention_days=settings.network.flow_log_retention_days,
        permission_boundary_arn=settings.permission_boundary_arn,
    )


class Network(pulumi.ComponentResource):
    """VPC with a public and a private subnet a zone, routes, endpoints and the nodes' security group.

    Nodes live in the private subnets without public addresses. S3 always goes through a gateway endpoint,
    past any NAT gateway. With ``nat="none"`` nodes reach S3, and through interface endpoints the services in
    NODE_SERVICES: enough to boot, verify themselves, train and be looked at through Session Manager; no
    package index, no container registry, no API of another service.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: dict[str, pulumi.Output[str]]  # by zone
    node_security_group_id: pulumi.Output[str]
    ready: list[pulumi.Resource]  # routes, endpoints and rules that must exist before a node boots

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:network:Network", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self.ready = []

        self._vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=args.cidr_block,
            enable_dns_support=True,
            enable_dns_hostnames=True,  # private DNS of interface endpoints needs both
            tags=self._tags("vpc"),
            opts=self._child,
        )
        self.vpc_id = self._vpc.id
        # Whoever forgets to name a group gets one that lets nothing through.
        aws.ec2.DefaultSecurityGroup(
            f"{name}-default",
            vpc_id=self.vpc_id,
            ingress=[],
            egress=[],
            tags=self._tags("unused"),
            opts=self._child,
        )
        self._subnets()
        self._nat_routes()
        self._endpoints()
        self._node_security_group()
        if args.flow_log_retention_days is not None:
            declare_flow_logs(
                name,
                args.names,
                self.vpc_id,
                args.flow_log_retention_days,
                args.permission_boundary_arn,
                parent=self,
            )

        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "privateSubnetIds": self.private_subnet_ids,
                "nodeSecurityGroupId": self.node_security_group_id,
            }
        )

    def _tags(self, role: str) -> dict[str, str]:
        return {"Name": f"{self._args.names.base_name}-{role}"}

    def _subnets(self) -> None:
        """Subnets, one public route table, one private table a zone, and the way from the public ones to the
        world.
        """
        gateway = aws.ec2.InternetGateway(
            f"{self._name}-internet", vpc_id=self.vpc_id, tags=self._tags("internet"), opts=self._child
        )
        self._public_table = aws.ec2.RouteTable(
            f"{self._name}-public", vpc_id=self.vpc_id, tags=self._tags("public"), opts=self._child
        )
        self._internet_route = aws.ec2.Route(
            f"{self._name}-public-internet",
            route_table_id=self._public_table.id,
            destination_cidr_block=WORLD,
            gateway_id=gateway.id,
            opts=self._child,
        )
        self.private_subnet_ids, self._public_subnets, self._private_tables = {}, {}, {}
        for subnets in plan_subnets(self._args.cidr_block, self._args.availability_zones):
            zone = subnets.zone
            self._public_subnets[zone], _ = self._subnet(
                "public", zone, subnets.public_cidr, self._public_table
            )
            # A table of its own for each zone: another choice of NAT then changes a route and no subnet.
            self._private_tables[zone] = aws.ec2.RouteTable(
                f"{self._name}-private-{zone}",
                vpc_id=self.vpc_id,
                tags=self._tags(f"private-{zone}"),
                opts=self._child,
            )
            private, association = self._subnet(
                "private", zone, subnets.private_cidr, self._private_tables[zone]
            )
            self.private_subnet_ids[zone] = private.id
            self.ready.append(association)

    def _subnet(
        self, kind: str, zone: str, cidr_block: str, table: aws.ec2.RouteTable
    ) -> tuple[aws.ec2.Subnet, aws.ec2.RouteTableAssociation]:
        subnet = aws.ec2.Subnet(
            f"{self._name}-{kind}-{zone}",
            vpc_id=self.vpc_id,
            availability_zone=zone,
            cidr_block=cidr_block,
            map_public_ip_on_launch=False,  # also in public ones: NAT gateways bring their own address
            tags=self._tags(f"{kind}-{zone}"),
            opts=self._child,
        )
        association = aws.ec2.RouteTableAssociation(
            f"{self._name}-{kind}-{zone}", subnet_id=subnet.id, route_table_id=table.id, opts=self._child
        )
        return subnet, association

    def _nat_routes(self) -> None:
        """NAT gateways as chosen, and each private table's route to one of them."""
        zones = self._args.availability_zones
        nat_zones = {"none": [], "single": zones[:1], "per-az": zones}[self._args.nat]
        gateways = {zone: self._nat_gateway(zone) for zone in nat_zones}
        for zone in zones if gateways else []:
            route = aws.ec2.Route(
                f"{self._name}-private-{zone}-nat",
                route_table_id=self._private_tables[zone].id,
                destination_cidr_block=WORLD,
                nat_gateway_id=gateways.get(zone, gateways[nat_zones[0]]).id,
                opts=self._child,
            )
            self.ready.append(route)

    def _nat_gateway(self, zone: str) -> aws.ec2.NatGateway:
        address = aws.ec2.Eip(
            f"{self._name}-nat-{zone}", domain="vpc", tags=self._tags(f"nat-{zone}"), opts=self._child
        )
        return aws.ec2.NatGateway(
            f"{self._name}-nat-{zone}",
            allocation_id=address.id,
            subnet_id=self._public_subnets[zone].id,
            tags=self._tags(f"nat-{zone}"),
            # Its address cannot be on two gateways at once, so a replacement waits for the old one to go.
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[self._internet_route], delete_before_replace=True
            ),
        )

    def _endpoints(self) -> None:
        self._s3 = aws.ec2.VpcEndpoint(
            f"{self._name}-s3",
            vpc_id=self.vpc_id,
            service_name=f"com.amazonaws.{self._args.names.region}.s3",
            vpc_endpoint_type="Gateway",
            route_table_ids=[self._public_table.id, *(table.id for table in self._private_tables.values())],
            tags=self._tags("s3"),
            opts=self._child,
        )
        self.ready.append(self._s3)
        if self._args.nat != "none":
            return
        group = aws.ec2.SecurityGroup(
            f"{self._name}-endpoints",
            vpc_id=self.vpc_id,
            description="Interface endpoints of AWS services",  # a constant: another one replaces the group
            tags=self._tags("endpoints"),
            opts=self._child,
        )
        self._ingress(
            "endpoints-https", group, "HTTPS from the VPC", cidr=self._args.cidr_block, port=HTTPS_PORT
        )
        for service in NODE_SERVICES:
            endpoint = aws.ec2.VpcEndpoint(
                f"{self._name}-{service}",
                vpc_id=self.vpc_id,
                service_name=f"com.amazonaws.{self._args.names.region}.{service}",
                vpc_endpoint_type="Interface",
                private_dns_enabled=True,
                subnet_ids=list(self.private_subnet_ids.values()),
                security_group_ids=[group.id],
                tags=self._tags(service),
                opts=self._child,
            )
            self.ready.append(endpoint)

    def _node_security_group(self) -> None:
        """The nodes' group: everything among themselves, which EFA demands both ways by the group's own name;
        metrics from the VPC; HTTPS to the outside, since AWS's APIs are there. Nothing comes in from the
        world.
        """
        group = aws.ec2.SecurityGroup(
            f"{self._name}-nodes",
            vpc_id=self.vpc_id,
            description="Training nodes",  # a constant: another one replaces the group and with it every node
            tags=self._tags("nodes"),
            opts=self._child,
        )
        self.node_security_group_id = group.id
        self._ingress("nodes-from-nodes", group, "All traffic among the nodes, as EFA needs it", source=group)
        self._egress("nodes-to-nodes", group, "All traffic among the nodes, as EFA needs it", target=group)
        self._ingress(
            "nodes-metrics",
            group,
            "Metrics, from the VPC",
            cidr=self._args.cidr_block,
            port=self._args.metrics_port,
        )
        if self._args.nat == "none":
            self._egress(
                "nodes-to-endpoints", group, "HTTPS to the VPC's endpoints", cidr=self._args.cidr_block
            )
            self._egress("nodes-to-s3", group, "HTTPS to S3", prefix_list_id=self._s3.prefix_list_id)
        else:
            self._egress("nodes-to-https", group, "HTTPS to AWS's APIs", cidr=WORLD)

    def _ingress(
        self,
        role: str,
        group: aws.ec2.SecurityGroup,
        description: str,
        cidr: str | None = None,
        port: int | None = None,
        source: aws.ec2.SecurityGroup | None = None,
    ) -> None:
        rule = aws.vpc.SecurityGroupIngressRule(
            f"{self._name}-{role}",
            security_group_id=group.id,
            description=description,
            cidr_ipv4=cidr,
            referenced_security_group_id=source.id if source else None,
            ip_protocol="-1" if port is None else "tcp",
            from_port=port,
            to_port=port,
            opts=self._child,
        )
        self.ready.append(rule)

    def _egress(
        self,
        role: str,
        group: aws.ec2.SecurityGroup,
        description: str,
        cidr: str | None = None,
        prefix_list_id: pulumi.Output[str] | None = None,
        target: aws.ec2.SecurityGroup | None = None,
    ) -> None:
        port = None if target else HTTPS_PORT
        rule = aws.vpc.SecurityGroupEgressRule(
            f"{self._name}-{role}",
            security_group_id=group.id,
            description=description,
            cidr_ipv4=cidr,
            prefix_list_id=prefix_list_id,
            referenced_security_group_id=target.id if target else None,
            ip_protocol="-1" if port is None else "tcp",
            from_port=port,
            to_port=port,
            opts=self._child,
        )
        self.ready.append(rule)
