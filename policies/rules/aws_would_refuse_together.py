"""What AWS refuses of several resources together, such as a subnet outside its VPC.

A rule of the whole stack judges after the program ran: at preview before anything exists, at an update after it.
So `pulumi preview` is where these are caught; docs/validators.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import PolicyResource, Severity

from ._judge import Finding, Outcome, StackRule, unknown
from .refusals._validator import NotKnown
from .refusals.together import VALIDATORS


def judge(stack: list[PolicyResource]) -> Iterator[Finding]:
    for validator in VALIDATORS:
        for resource, found in validator.find(stack):
            if isinstance(found, NotKnown):
                yield unknown(resource, found.path)
            else:
                yield Finding(
                    Outcome.VIOLATION, found, resource.name, resource.urn, validator.id, validator.fix
                )


RULE = StackRule(
    id="aws-would-refuse-together",
    why="What AWS refuses of several resources together shows only when the last of them is made.",
    fix="write what AWS takes; docs/validators.md lists every validator",
    severity=Severity.HIGH,
    types=frozenset(type_ for validator in VALIDATORS for type_ in validator.types),
    judge=judge,
)
