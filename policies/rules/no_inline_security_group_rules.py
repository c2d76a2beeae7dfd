"""Rules of a security group are resources of their own."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import UNKNOWN, Finding, ResourceRule, read, unknown, violation


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    for key in ("ingress", "egress"):
        value = read(resource.props, key)
        if value is UNKNOWN:
            yield unknown(resource, key)
        elif value is not None:  # an empty list revokes what others granted, so it counts too
            yield violation(
                resource, f"{key}: inline rules and separate rules undo one another on alternate runs"
            )


RULE = ResourceRule(
    id="no-inline-security-group-rules",
    why="Inline rules revoke every rule that is declared separately, and hide it from the other policies.",
    fix="vpc.SecurityGroupIngressRule and vpc.SecurityGroupEgressRule, one resource a rule",
    severity=Severity.MEDIUM,
    types=frozenset({"aws:ec2/securityGroup:SecurityGroup"}),
    judge=judge,
)
