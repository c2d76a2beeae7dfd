"""No role may do everything to everything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import UNKNOWN, Finding, ResourceRule, leaves, unknown, violation

DOCUMENTS = {
    "aws:iam/policy:Policy": ("policy",),
    "aws:iam/rolePolicy:RolePolicy": ("policy",),
    "aws:iam/userPolicy:UserPolicy": ("policy",),
    "aws:iam/groupPolicy:GroupPolicy": ("policy",),
    "aws:iam/role:Role": ("inlinePolicies[*].policy",),
}
ATTACHMENTS = {
    "aws:iam/role:Role": ("managedPolicyArns[*]",),
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": ("policyArn",),
}
ADMINISTRATORS = ("policy/AdministratorAccess", "policy/PowerUserAccess")


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    for at, document in _present(resource, DOCUMENTS):
        yield from [unknown(resource, at)] if document is UNKNOWN else _document(resource, at, document)
    for at, arn in _present(resource, ATTACHMENTS):
        if arn is UNKNOWN:
            yield unknown(resource, at)
        elif arn.endswith(ADMINISTRATORS):
            yield violation(resource, f"{at}: {arn.rsplit('/', 1)[-1]} allows nearly everything")


def _present(
    resource: ResourceValidationArgs, paths: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, Any]]:
    for path in paths.get(resource.resource_type, ()):
        yield from ((at, value) for at, value in leaves(resource.props, path) if value is not None)


def _document(resource: ResourceValidationArgs, at: str, text: str) -> Iterator[Finding]:
    try:
        statements = _list(json.loads(text).get("Statement"))
    except (ValueError, AttributeError):
        yield violation(resource, f"{at}: is no IAM policy in JSON")
        return
    for number, statement in enumerate(statements):
        if _is_boundless(statement):
            yield violation(
                resource, f"{at}: statement {number} allows every action of a service on every resource"
            )


def _is_boundless(statement: Mapping[str, Any]) -> bool:
    if statement.get("Effect") != "Allow" or "*" not in _list(statement.get("Resource")):
        return False
    return "NotAction" in statement or any(
        action == "*" or action.endswith(":*") for action in _list(statement.get("Action"))
    )


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


RULE = ResourceRule(
    id="iam-no-star-star",
    why="A role with every action on every resource turns one broken node into a broken account.",
    fix="list the actions that are called and the ARNs that they are called on",
    severity=Severity.HIGH,
    types=frozenset({*DOCUMENTS, *ATTACHMENTS}),
    judge=judge,
)
