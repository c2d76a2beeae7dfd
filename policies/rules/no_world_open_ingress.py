"""Nothing in the environment answers the internet."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import UNKNOWN, Finding, ResourceRule, leaves, unknown, violation

INGRESS_RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
OLD_RULE = "aws:ec2/securityGroupRule:SecurityGroupRule"
PATHS = {
    INGRESS_RULE: ("cidrIpv4", "cidrIpv6"),
    OLD_RULE: ("cidrBlocks[*]", "ipv6CidrBlocks[*]"),
    "aws:ec2/securityGroup:SecurityGroup": ("ingress[*].cidrBlocks[*]", "ingress[*].ipv6CidrBlocks[*]"),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": (
        "ingress[*].cidrBlocks[*]",
        "ingress[*].ipv6CidrBlocks[*]",
    ),
}
# Shorter prefixes than these are the world in slices (0.0.0.0/1 and 128.0.0.0/1); no organisation owns one.
SHORTEST_PREFIX = {4: 8, 6: 16}


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    if resource.resource_type == OLD_RULE:
        direction = next(value for _, value in leaves(resource.props, "type"))
        if direction is UNKNOWN:
            yield unknown(resource, "type")
        if direction != "ingress":
            return
    for path in PATHS[resource.resource_type]:
        for at, value in leaves(resource.props, path):
            if value is UNKNOWN:
                yield unknown(resource, at)
            elif value is not None:
                yield from _cidr(resource, at, value)


def _cidr(resource: ResourceValidationArgs, at: str, value: str) -> Iterator[Finding]:
    try:
        network = ip_network(value, strict=False)
    except ValueError:
        yield violation(resource, f"{at}: {value!r} is no CIDR block")
        return
    if network.prefixlen < SHORTEST_PREFIX[network.version]:
        yield violation(resource, f"{at}: {value} lets the whole internet in")


RULE = ResourceRule(
    id="no-world-open-ingress",
    why="A port that is open to the internet is found and attacked within minutes.",
    fix="name the security group or the private CIDR block that needs access; people use Session Manager",
    severity=Severity.CRITICAL,
    types=frozenset(PATHS),
    judge=judge,
)
