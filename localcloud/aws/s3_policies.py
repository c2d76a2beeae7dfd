"""Bucket policies as S3 reads them: a statement counts only when its condition holds.

moto leaves conditions aside, so that a policy which denies plain HTTP denies everything. Loopback stands for TLS
here: no packet leaves the machine.
"""

from __future__ import annotations

import json
from typing import Any

from moto.iam.access_control import IAMPolicy, PermissionResult


def get_permission(bucket: Any, action: str, resource: str) -> PermissionResult:
    if bucket.policy is None:
        return PermissionResult.NEUTRAL
    policy = json.loads(bucket.policy)
    statements = policy["Statement"] if isinstance(policy["Statement"], list) else [policy["Statement"]]
    policy["Statement"] = [statement for statement in statements if not _only_plain_http(statement)]
    return IAMPolicy(json.dumps(policy)).is_action_permitted(action, resource)


def _only_plain_http(statement: dict[str, Any]) -> bool:
    wanted = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    return wanted in ("false", ["false"])
