"""Logs end some day."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import Finding, ResourceRule, require

# The values that PutRetentionPolicy accepts (botocore's service model of CloudWatch Logs, 2026-11).
DAYS = (
    1,
    3,
    5,
    7,
    14,
    30,
    60,
    90,
    120,
    150,
    180,
    365,
    400,
    545,
    731,
    1096,
    1827,
    2192,
    2557,
    2922,
    3288,
    3653,
)


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    yield from require(
        resource,
        "retentionInDays",
        lambda value: value in DAYS,
        f"logs must expire after one of {', '.join(map(str, DAYS))} days, else they are paid for ever",
    )


RULE = ResourceRule(
    id="log-retention-set",
    why="A log group keeps, and bills, its events for ever unless told otherwise.",
    fix="retention_in_days with a value that CloudWatch Logs knows",
    severity=Severity.LOW,
    types=frozenset({"aws:cloudwatch/logGroup:LogGroup"}),
    judge=judge,
)
