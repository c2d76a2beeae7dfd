"""IAM policy documents: the provider checks that they are JSON, not what they say.

Grammar of the IAM user guide, "Grammar of the IAM JSON policy language" and "Condition operators" (2026).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from .._judge import UNKNOWN, leaves
from ._validator import Found, Inputs, NotKnown, Validator


class Kind(NamedTuple):
    """Where a policy stands: whether it names principals, whether it names resources, and how long it may be."""

    principals: bool
    resources: bool
    max_characters: int


IDENTITY = Kind(False, True, 6144)
INLINE = Kind(False, True, 10240)  # of a role; all its inline policies together
TRUST = Kind(True, False, 2048)
RESOURCE = Kind(True, True, 20480)
KEY = Kind(True, True, 32768)
DOCUMENTS: dict[str, dict[str, Kind]] = {
    "aws:iam/policy:Policy": {"policy": IDENTITY},
    "aws:iam/rolePolicy:RolePolicy": {"policy": INLINE},
    "aws:iam/userPolicy:UserPolicy": {"policy": INLINE},
    "aws:iam/groupPolicy:GroupPolicy": {"policy": INLINE},
    "aws:iam/role:Role": {"assumeRolePolicy": TRUST, "inlinePolicies[*].policy": INLINE},
    "aws:s3/bucketPolicy:BucketPolicy": {"policy": RESOURCE},
    "aws:kms/key:Key": {"policy": KEY},
    "aws:sns/topicPolicy:TopicPolicy": {"policy": RESOURCE},
    "aws:sns/topic:Topic": {"policy": RESOURCE},
    "aws:sqs/queuePolicy:QueuePolicy": {"policy": RESOURCE},
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"policy": RESOURCE},
}
VERSIONS = ("2012-10-17", "2008-10-17")
KEYS = frozenset(
    [
        "Sid",
        "Effect",
        "Principal",
        "NotPrincipal",
        "Action",
        "NotAction",
        "Resource",
        "NotResource",
        "Condition",
    ]
)
ACTION = re.compile(r"\*|[a-z0-9-]+:[A-Za-z0-9*?]+")
PRINCIPALS = ("AWS", "Service", "Federated", "CanonicalUser")
COMPARISONS = {
    "String": ("Equals", "NotEquals", "EqualsIgnoreCase", "NotEqualsIgnoreCase", "Like", "NotLike"),
    "Numeric": ("Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"),
    "Date": ("Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"),
    "Arn": ("Equals", "Like", "NotEquals", "NotLike"),
}
OPERATORS = frozenset(
    (
        *("Bool", "BinaryEquals", "IpAddress", "NotIpAddress", "Null"),
        *(f"{kind}{comparison}" for kind, comparisons in COMPARISONS.items() for comparison in comparisons),
    )
)
Statement = Mapping[str, Any]


def _documents(inputs: Inputs) -> Iterator[tuple[str, Kind, Any]]:
    """Path, kind and text of each policy that is there and known."""
    for path, kind in DOCUMENTS[inputs.type].items():
        for at, text in leaves(inputs, path):
            if text is not None and text is not UNKNOWN:
                yield at, kind, text


def _statements(inputs: Inputs) -> Iterator[tuple[str, Kind, Statement]]:
    """Every statement with its path, such as `policy: statement 2`."""
    for at, kind, text in _documents(inputs):
        for number, statement in enumerate(_list((_parsed(text) or {}).get("Statement"))):
            if isinstance(statement, Mapping):
                yield f"{at}: statement {number}", kind, statement


def _parsed(text: Any) -> Mapping[str, Any] | None:
    try:
        document = json.loads(text)
    except (TypeError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def policy_is_a_document(inputs: Inputs) -> Iterator[Found]:
    """A JSON object with `Version` 2012-10-17 and at least one statement."""
    for path, kind in DOCUMENTS[inputs.type].items():
        for at, text in leaves(inputs, path):
            if text is UNKNOWN and kind.principals:  # of the others `iam-no-star-star` tells it
                yield NotKnown(at)
    for at, _, text in _documents(inputs):
        document = _parsed(text)
        if document is None:
            yield f"{at}: is no JSON object"
            continue
        version = document.get("Version")
        if version is not None and version not in VERSIONS:
            yield f"{at}: Version '{version}' is none of {', '.join(VERSIONS)}"
        statements = _list(document.get("Statement"))
        if not statements or not all(isinstance(one, Mapping) for one in statements):
            yield f"{at}: Statement is no statement or list of them"
        for key in sorted(document.keys() - {"Version", "Id", "Statement"}):
            yield f"{at}: '{key}' is no key of a policy"


def policy_fits(inputs: Inputs) -> Iterator[Found]:
    """Characters without white space: managed 6,144; inline of a role 10,240; trust 2,048; buckets, topics, queues
    and endpoints 20,480; keys 32,768 (IAM and STS quotas; the services' guides, 2026).
    """
    for at, kind, text in _documents(inputs):
        length = len(re.sub(r"\s", "", str(text)))
        if length > kind.max_characters:
            yield f"{at}: {length} characters, {kind.max_characters} are allowed"


def statement_keys_exist(inputs: Inputs) -> Iterator[Found]:
    """A statement has these keys only, each of them spelt so."""
    for at, _, statement in _statements(inputs):
        for key in sorted(statement.keys() - KEYS):
            yield f"{at}: '{key}' is no key of a statement"


def statement_effect_exists(inputs: Inputs) -> Iterator[Found]:
    """`Allow` or `Deny`."""
    for at, _, statement in _statements(inputs):
        if statement.get("Effect") not in ("Allow", "Deny"):
            yield f"{at}: Effect {statement.get('Effect')!r} is neither Allow nor Deny"


def statement_actions_have_the_form(inputs: Inputs) -> Iterator[Found]:
    """`service:Action`, with `*` and `?`; exactly one of `Action` and `NotAction`."""
    for at, _, statement in _statements(inputs):
        if ("Action" in statement) == ("NotAction" in statement):
            yield f"{at}: needs exactly one of Action and NotAction"
        for action in (*_list(statement.get("Action")), *_list(statement.get("NotAction"))):
            if not isinstance(action, str) or not ACTION.fullmatch(action):
                yield f"{at}: '{action}' is no action"


def statement_resources_have_the_form(inputs: Inputs) -> Iterator[Found]:
    """`*` or ARNs of six parts; exactly one of `Resource` and `NotResource`, and none in a trust policy."""
    for at, kind, statement in _statements(inputs):
        given = [key for key in ("Resource", "NotResource") if key in statement]
        if not kind.resources:
            if given:
                yield f"{at}: {given[0]} in a trust policy"
            continue
        if len(given) != 1:
            yield f"{at}: needs exactly one of Resource and NotResource"
        for key in given:
            for resource in _list(statement[key]):
                if resource != "*" and not re.fullmatch(r"arn:[^:]*:[^:]+:[^:]*:[^:]*:.+", str(resource)):
                    yield f"{at}: '{resource}' is neither an ARN nor *"


def statement_principals_are_where_they_belong(inputs: Inputs) -> Iterator[Found]:
    """A policy of an identity names none; every other statement names one, by AWS, Service, Federated or `*`."""
    for at, kind, statement in _statements(inputs):
        given = [key for key in ("Principal", "NotPrincipal") if key in statement]
        if kind.principals != (len(given) == 1):
            wrong = "names no principal" if kind.principals else "names a principal, which is the role itself"
            yield f"{at}: {wrong}"
        for key in given:
            principal = statement[key]
            if isinstance(principal, Mapping):
                for sort in sorted(principal.keys() - set(PRINCIPALS)):
                    yield f"{at}: '{sort}' is no kind of principal"
                for service in _list(principal.get("Service")):
                    if not re.fullmatch(r"[a-z0-9.-]+\.amazonaws\.com(\.cn)?", str(service)):
                        yield f"{at}: '{service}' is no service principal"
            elif principal != "*":
                yield f"{at}: {key} is neither * nor a map"


def condition_operators_exist(inputs: Inputs) -> Iterator[Found]:
    """An operator of the table, maybe with `ForAllValues:`, `ForAnyValue:` before it and `IfExists` behind it."""
    for at, _, statement in _statements(inputs):
        conditions = statement.get("Condition", {})
        if not isinstance(conditions, Mapping):
            yield f"{at}: Condition is no map"
            continue
        for operator, keys in conditions.items():
            plain = re.sub(r"^(ForAllValues|ForAnyValue):", "", operator)
            if plain.removesuffix("IfExists") not in OPERATORS:
                yield f"{at}: '{operator}' is no condition operator"
            if not isinstance(keys, Mapping) or not keys:
                yield f"{at}: {operator} names no condition key"
                continue
            for key in keys:
                if not re.fullmatch(r"[a-zA-Z0-9-]+:[^\s:].*", key):
                    yield f"{at}: '{key}' is no condition key"


def statement_ids_are_letters_and_digits(inputs: Inputs) -> Iterator[Found]:
    """In policies of identities a `Sid` has letters and digits only, and each is there once in a policy."""
    seen: set[tuple[str, str]] = set()
    for at, kind, statement in _statements(inputs):
        sid = statement.get("Sid")
        if sid is None:
            continue
        if not kind.principals and not re.fullmatch(r"[A-Za-z0-9]*", str(sid)):
            yield f"{at}: Sid '{sid}' has other characters than letters and digits"
        document = at.rpartition(": statement")[0]
        if (document, sid) in seen:
            yield f"{at}: Sid '{sid}' is there twice"
        seen.add((document, str(sid)))


_ALL = frozenset(DOCUMENTS)
VALIDATORS = (
    Validator(policy_is_a_document, _ALL, "json.dumps of a policy of version 2012-10-17"),
    Validator(policy_fits, _ALL, "fewer or shorter statements, or a policy of its own"),
    Validator(
        statement_keys_exist, _ALL, "Sid, Effect, Principal, Action, Resource, Condition or their Not forms"
    ),
    Validator(statement_effect_exists, _ALL, "Allow or Deny"),
    Validator(statement_actions_have_the_form, _ALL, "actions such as s3:GetObject"),
    Validator(statement_resources_have_the_form, _ALL, "whole ARNs"),
    Validator(
        statement_principals_are_where_they_belong, _ALL, "a principal in trust and resource policies only"
    ),
    Validator(condition_operators_exist, _ALL, "an operator such as StringEquals, with condition keys"),
    Validator(
        statement_ids_are_letters_and_digits, _ALL, "a different plain Sid for each statement, or none"
    ),
)
