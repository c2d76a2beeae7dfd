"""IAM policies as canonical JSON, so that equal policies have equal text and never show as a change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Statement = Mapping[str, Any]


def policy_document(statements: Sequence[Statement]) -> str:
    """Version 2012-10-17, sorted keys, and every action and resource as a list, as IAM itself stores them."""
    return json.dumps(
        {"Version": "2012-10-17", "Statement": [_with_lists(statement) for statement in statements]},
        sort_keys=True,
    )


def trust_policy(service: str, account_id: str | None = None) -> str:
    """Lets one AWS service assume a role; with ``account_id`` only on behalf of that account (confused
    deputy).
    """
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": [service]},
        "Action": ["sts:AssumeRole"],
    }
    if account_id is not None:
        statement["Condition"] = {"StringEquals": {"aws:SourceAccount": [account_id]}}
    return policy_document([statement])


def allow(actions: str | list[str], resources: list[str]) -> dict[str, Any]:
    """A statement that allows; conditions are added by the caller."""
    return {
        "Effect": "Allow",
        "Action": [actions] if isinstance(actions, str) else actions,
        "Resource": resources,
    }


def listing(bucket_arns: list[str], prefixes: list[str]) -> dict[str, Any]:
    """The right to list; without it S3 answers 403 where an object is absent, and absent is an answer that is waited
    for. That answer is given for a request without a prefix, hence IfExists.
    """
    return {
        **allow("s3:ListBucket", bucket_arns),
        "Condition": {"StringLikeIfExists": {"s3:prefix": prefixes}},
    }


def partition(region: str) -> str:
    """The ARN partition of a region: aws, aws-us-gov or aws-cn."""
    if region.startswith("us-gov-"):
        return "aws-us-gov"
    return "aws-cn" if region.startswith("cn-") else "aws"


def _with_lists(statement: Statement) -> dict[str, Any]:
    return {
        key: [value] if key in ("Action", "Resource") and isinstance(value, str) else value
        for key, value in statement.items()
    }
