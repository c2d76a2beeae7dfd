"""The network a training cluster lives in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from components.names import StackNames, stack_names
from components.settings import Settings

from .endpoints import declare_interface_endpoints, declare_s3_endpoint
from .flow_logs import declare_flow_logs
from .plan import interface_endpoints
from .security_groups import declare_group, declare_rule
from .security_rules import Group, LustreTraffic, plan_rules
from .vpc import declare_vpc


@dataclass(frozen=True)
class NetworkArgs:
    """What a network is made of; every value is plain, so that previews show and policies judge it."""

    names: StackNames
    """Where the network lives and what its parts are called."""

    cidr_block: str
    """The VPC's IPv4 block: /16 to /21 of an own one, the range of an existing one."""

    availability_zones: Sequence[str]
    """Regional zones, all by name (us-east-1a) or all by id (use1-az1). A zone's letter or number fixes its
    subnets. The first one holds the single NAT gateway, so that moving another zone to the front replaces that
    gateway.
    """

    nat: str
    """none: nodes reach AWS's own services through endpoints and nothing else. single: one NAT gateway in the
    first zone, on which all zones depend. per-az: one a zone, so that no zone depends on another and none
    pays for traffic between zones.
    """

    interface_endpoints: Sequence[str]
    """AWS services with an endpoint in each zone, by the last part of their service names."""

    metrics_port: int
    """TCP port of the node's metrics exporter, open to the VPC's addresses."""

    lustre: LustreTraffic = "none"
    """What nodes and an FSx for Lustre file system send each other: none, Lustre's TCP ports, or EFA."""

    flow_log_retention_days: int | None = None
    """Days that the log of all flows is kept. None: no flow logs."""

    permission_boundary_arn: str | None = None
    """Boundary of the role that writes the flow logs. None: no boundary."""

    logs_key_arn: pulumi.Input[str] | None = None
    """Key of the flow logs' group, whose policy lets CloudWatch Logs in. None: the service's own encryption."""

    existing_vpc_id: str | None = None
    """A VPC that somebody else keeps. None: the network makes its own."""

    existing_subnet_ids: Mapping[str, str] | None = None
    """That VPC's private subnets, by zone. None: the network makes its own."""


def network_args(settings: Settings, logs_key_arn: pulumi.Input[str] | None = None) -> NetworkArgs:
    """The network that the settings ask for."""
    network, lustre = settings.network, settings.lustre
    return NetworkArgs(
        names=stack_names(settings),
        cidr_block=network.cidr,
        availability_zones=network.availability_zones,
        nat=network.nat,
        interface_endpoints=interface_endpoints(settings),
        metrics_port=settings.monitoring.metrics_port,
        lustre="none" if lustre is None else "efa" if lustre.efa else "tcp",
        flow_log_retention_days=network.flow_log_retention_days,
        permission_boundary_arn=settings.permission_boundary_arn,
        logs_key_arn=logs_key_arn,
        existing_vpc_id=network.existing.vpc_id if network.existing else None,
        existing_subnet_ids=network.existing.subnet_ids if network.existing else None,
    )


class Network(pulumi.ComponentResource):
    """VPC with a public and a private subnet a zone, routes, endpoints, and the security groups.

    Nodes live in the private subnets without public addresses. S3 always goes through a gateway endpoint,
    past any NAT gateway; through it, the stack's own buckets and those of AWS's that nodes need can be
    reached, and no other. With ``nat="none"`` nodes reach S3, and through interface endpoints the services
    that they call: enough to boot, verify themselves, train and be looked at through Session Manager; no
    package index, no container registry, no API of another service.

    In an existing VPC there are the security groups and their rules, and nothing else.
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: dict[str, pulumi.Output[str]]  # by zone, as the settings spell it
    node_security_group_id: pulumi.Output[str]
    lustre_security_group_id: pulumi.Output[str] | None  # of the file system; None where there is none
    ready: list[pulumi.Resource]  # routes, endpoints and rules that must exist before a node boots

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:network:Network", name, None, opts)
        self._name, self._args = name, args
        self._group_ids: dict[Group, pulumi.Output[str]] = {}
        self.ready = []
        if args.existing_vpc_id is not None:
            self.vpc_id = pulumi.Output.from_input(args.existing_vpc_id)
            subnets = args.existing_subnet_ids or {}
            self.private_subnet_ids = {zone: pulumi.Output.from_input(id_) for zone, id_ in subnets.items()}
            self._security_groups(None)
        else:
            self._own_vpc()
        self.node_security_group_id = self._group_ids["nodes"]
        self.lustre_security_group_id = self._group_ids.get("lustre")
        self.register_outputs(
            {
                "vpcId": self.vpc_id,
                "privateSubnetIds": self.private_subnet_ids,
                "nodeSecurityGroupId": self.node_security_group_id,
            }
        )

    def _own_vpc(self) -> None:
        name, args = self._name, self._args
        vpc = declare_vpc(name, args.names, args.cidr_block, args.availability_zones, args.nat, parent=self)
        self.vpc_id, self.private_subnet_ids = vpc.vpc_id, vpc.private_subnet_ids
        s3 = declare_s3_endpoint(name, args.names, vpc, parent=self)
        self.ready += [*vpc.ready, s3]
        self._security_groups(s3.prefix_list_id)
        if args.interface_endpoints:
            inside = self._group_ids["endpoints"]
            self.ready += declare_interface_endpoints(
                name, args.names, vpc, args.interface_endpoints, inside, parent=self
            )
        if args.flow_log_retention_days is not None:
            declare_flow_logs(
                name,
                args.names,
                self.vpc_id,
                args.flow_log_retention_days,
                args.permission_boundary_arn,
                args.logs_key_arn,
                parent=self,
            )

    def _security_groups(self, s3_prefix_list_id: pulumi.Output[str] | None) -> None:
        """The groups of the planned rules. An existing VPC's way to S3 is not known, hence HTTPS to anywhere."""
        args = self._args
        alone = args.nat == "none" and args.existing_vpc_id is None
        rules = plan_rules(
            args.cidr_block,
            args.metrics_port,
            "endpoints" if alone else "world",
            bool(args.interface_endpoints),
            args.lustre,
        )
        groups: dict[Group, None] = dict.fromkeys(rule.group for rule in rules)  # each once, in order
        for group in groups:
            self._group_ids[group] = declare_group(self._name, args.names, group, self.vpc_id, parent=self)
        self.ready += [
            declare_rule(self._name, rule, self._group_ids, s3_prefix_list_id, parent=self) for rule in rules
        ]
