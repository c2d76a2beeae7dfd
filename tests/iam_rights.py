"""Whether IAM statements allow a call: the part of IAM's rules that this project's policies use, and no more.

An operator, a key or a wildcard that is not known here is an error, so that no test passes by what it cannot judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Statement = Mapping[str, Any]


@dataclass(frozen=True)
class Access:
    """One action on one resource. ``context`` holds the condition keys that the request has."""

    action: str
    resource: str
    context: Mapping[str, str] = field(default_factory=dict, hash=False)


def allows(statements: Sequence[Statement], access: Access) -> bool:
    """A Deny wins; what nothing allows is denied."""
    matching = [statement["Effect"] for statement in statements if matches(statement, access)]
    return "Allow" in matching and "Deny" not in matching


def matches(statement: Statement, access: Access) -> bool:
    assert "NotAction" not in statement and "NotResource" not in statement
    return (
        any(like(pattern, access.action) for pattern in statement["Action"])
        and any(like(pattern, access.resource) for pattern in statement["Resource"])
        and all(
            _holds(operator, key, values, access.context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def like(pattern: str, text: str) -> bool:
    """IAM's wildcards: * for any characters, also slashes; ? for one."""
    parts = ({"*": ".*", "?": "."}.get(character, re.escape(character)) for character in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _holds(operator: str, key: str, values: Any, context: Mapping[str, str]) -> bool:
    wanted = [_filled(value, context) for value in (values if isinstance(values, list) else [values])]
    found = context.get(key)
    if operator == "Null":
        return (found is None) == (wanted == ["true"])
    if operator.endswith("IfExists"):
        if found is None:
            return True
        operator = operator.removesuffix("IfExists")
    negated = operator.startswith("StringNot")
    if found is None:
        return negated  # a negated operator holds for a key that is absent
    one_of = {
        "StringEquals": lambda: found in wanted,
        "StringNotEquals": lambda: found in wanted,
        "StringLike": lambda: any(like(pattern, found) for pattern in wanted if pattern is not None),
        "ArnLike": lambda: any(like(pattern, found) for pattern in wanted if pattern is not None),
        "Bool": lambda: found in wanted,
    }[operator]()
    return one_of != negated


def _filled(value: str, context: Mapping[str, str]) -> str | None:
    """A policy variable's value; None, which equals nothing, where the request has none."""
    variable = re.fullmatch(r"\$\{([^}]+)\}", value)
    if variable is None:
        assert "${" not in value, f"a variable inside a text: {value}"
        return value
    return context.get(variable.group(1))
