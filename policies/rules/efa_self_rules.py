"""EFA passes only between members of one security group that allows all traffic to and from itself.

A rule with a CIDR block does not do (EC2 guide, "EFA-enabled security group").
"""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import PolicyResource, Severity

from ._join import of_type, points_to
from ._judge import UNKNOWN, Finding, StackRule, is_true, leaves, read, unknown, violation

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
SEPARATE_RULES = {
    "ingress": "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
    "egress": "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule",
}
INTERFACES = "networkInterfaces"
ALL_TRAFFIC = ("-1", "all")


def judge(stack: list[PolicyResource]) -> Iterator[Finding]:
    for template in of_type(stack, TEMPLATE):
        kinds = [value for _, value in leaves(template.props, f"{INTERFACES}[*].interfaceType")]
        if any(kind is not UNKNOWN and kind in ("efa", "efa-only") for kind in kinds):
            yield from _template(template, stack)
        elif any(kind is UNKNOWN for kind in kinds):
            yield unknown(template, f"{INTERFACES}[*].interfaceType")


def _template(template: PolicyResource, stack: list[PolicyResource]) -> Iterator[Finding]:
    path = f"{INTERFACES}[*].securityGroups[*]"
    links = [
        (group, points_to(template, path, group, keys=("id",))) for group in of_type(stack, SECURITY_GROUP)
    ]
    used = [group for group, linked in links if linked]
    if not used and any(linked is None for _, linked in links):
        yield unknown(template, path)
        return
    gaps = [list(_gaps(group, stack)) for group in used]
    if not gaps:
        yield violation(template, f"{path}: an EFA interface needs a security group of the stack")
    elif all(gaps):  # one group with both rules is enough for its members to talk
        for group_gaps in gaps:
            yield from group_gaps


def _gaps(group: PolicyResource, stack: list[PolicyResource]) -> Iterator[Finding]:
    """One finding for each direction in which `group` does not allow all traffic with itself."""
    for direction, separate in SEPARATE_RULES.items():
        verdicts = [_separate(rule, group) for rule in of_type(stack, separate)]
        verdicts += [
            is_true(read(rule, "self")) and read(rule, "protocol") in ALL_TRAFFIC
            for _, rule in leaves(group.props, f"{direction}[*]")
            if rule is not UNKNOWN and rule is not None and read(rule, "self") is not UNKNOWN
        ]
        if any(verdict is True for verdict in verdicts):
            continue
        if any(verdict is None for verdict in verdicts):
            yield unknown(group, f"{direction} rules")
        else:
            yield violation(
                group, f"does not allow all {direction} traffic with itself, which its EFA members need"
            )


def _separate(rule: PolicyResource, group: PolicyResource) -> bool | None:
    """Whether `rule` allows all traffic between `group` and itself; None where that is not known yet."""
    protocol = read(rule.props, "ipProtocol")
    answers = [
        points_to(rule, "securityGroupId", group, keys=("id",)),
        points_to(rule, "referencedSecurityGroupId", group, keys=("id",)),
        None if protocol is UNKNOWN else protocol in ALL_TRAFFIC,
    ]
    return False if False in answers else None if None in answers else True


RULE = StackRule(
    id="efa-self-rules",
    why="Without rules that allow all traffic to and from itself, EFA fails silently and NCCL hangs.",
    fix='an ingress and an egress rule with ip_protocol="-1" that reference the security group itself',
    severity=Severity.MEDIUM,
    types=frozenset({TEMPLATE}),
    judge=judge,
)
