"""Inputs that the provider lets pass and AWS refuses, or takes and does not do what was meant.

Without this they show when the resource is made, after others of the update exist already. Each validator has an
id of its own, by which an exception may name it; docs/validators.md lists them.
"""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import Finding, Outcome, ResourceRule, unknown
from .refusals import VALIDATORS, Inputs, NotKnown, Validator

BY_TYPE: dict[str, list[Validator]] = {}
for _validator in VALIDATORS:
    for _type in _validator.types:
        BY_TYPE.setdefault(_type, []).append(_validator)


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    inputs = Inputs(resource.resource_type, resource.props)
    for validator in BY_TYPE.get(resource.resource_type, []):
        for found in validator.find(inputs):
            if isinstance(found, NotKnown):
                yield unknown(resource, found.path)
            else:
                yield Finding(
                    Outcome.VIOLATION, found, resource.name, resource.urn, validator.id, validator.fix
                )


RULE = ResourceRule(
    id="aws-would-refuse",
    why="What AWS refuses at creation ends an update half-way, with what was made before it left standing.",
    fix="write what AWS takes; docs/validators.md lists every validator",
    severity=Severity.HIGH,
    types=frozenset(BY_TYPE),
    judge=judge,
)
