"""GPU nodes have private addresses only: by their interfaces, and by the subnets they are launched into."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import PolicyResource, Severity

from ._join import of_type, points_to
from ._judge import UNKNOWN, Finding, StackRule, is_true, leaves, read, unknown, violation

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
GROUP = "aws:autoscaling/group:Group"
SUBNET = "aws:ec2/subnet:Subnet"
INTERFACE_PATH = {
    TEMPLATE: "networkInterfaces[*].associatePublicIpAddress",
    INSTANCE: "associatePublicIpAddress",
}
SUBNET_PATH = {GROUP: "vpcZoneIdentifiers[*]", INSTANCE: "subnetId"}


def judge(stack: list[PolicyResource]) -> Iterator[Finding]:
    for resource in of_type(stack, TEMPLATE, INSTANCE):
        for at, value in leaves(resource.props, INTERFACE_PATH[resource.resource_type]):
            # An instance's address is computed where it is not declared; its subnet then decides, see below.
            if value is UNKNOWN and resource.resource_type == TEMPLATE:
                yield unknown(resource, at)
            elif value is not UNKNOWN and is_true(value):
                yield violation(resource, f"{at}: the node would be reachable from the internet")
    for resource in of_type(stack, GROUP, INSTANCE):
        yield from _subnets(resource, of_type(stack, SUBNET))


def _subnets(resource: PolicyResource, subnets: list[PolicyResource]) -> Iterator[Finding]:
    """Where an interface does not say, its subnet's `mapPublicIpOnLaunch` decides."""
    path = SUBNET_PATH[resource.resource_type]
    links = [(subnet, points_to(resource, path, subnet, keys=("id",))) for subnet in subnets]
    used = [subnet for subnet, linked in links if linked]
    if not used and any(linked is None for _, linked in links):
        yield unknown(resource, path)
    for subnet in used:
        mapped = read(subnet.props, "mapPublicIpOnLaunch")
        if mapped is UNKNOWN:
            yield unknown(subnet, "mapPublicIpOnLaunch")
        elif is_true(mapped):
            yield violation(
                resource, f"{path}: subnet {subnet.name} gives each of its instances a public address"
            )


RULE = StackRule(
    id="no-public-ip-on-gpu-nodes",
    why="A GPU node with a public address can be reached, and exfiltrates, past every private route.",
    fix="associate_public_ip_address false or absent, and private subnets for the group",
    severity=Severity.HIGH,
    types=frozenset({TEMPLATE, INSTANCE, GROUP}),
    judge=judge,
)
