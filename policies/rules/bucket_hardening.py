"""A bucket is judged together with the separate resources that carry its settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pulumi_policy import PolicyResource, Severity

from ._join import of_type, points_to
from ._judge import UNKNOWN, Finding, StackRule, is_true, leaves, unknown, violation

BUCKET = "aws:s3/bucket:Bucket"
BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
ALGORITHMS = ("AES256", "aws:kms", "aws:kms:dsse")

# A check reads one split resource: True where the setting is right, False where not, None where unknown.
Check = Callable[[PolicyResource], "bool | None"]


def _all(values: list[Any], is_right: Callable[[Any], bool]) -> bool | None:
    known = [value for value in values if value is not UNKNOWN]
    if not all(is_right(value) for value in known):
        return False
    return None if len(known) < len(values) else bool(values)


def _any(values: list[Any], is_right: Callable[[Any], bool]) -> bool | None:
    known = [value for value in values if value is not UNKNOWN]
    if any(is_right(value) for value in known):
        return True
    return None if len(known) < len(values) else False


def _at(resource: PolicyResource, *paths: str) -> list[Any]:
    return [value for path in paths for _, value in leaves(resource.props, path)]


def _blocks_public_access(block: PolicyResource) -> bool | None:
    return _all(_at(block, *BLOCKS), is_true)


def _is_versioned(versioning: PolicyResource) -> bool | None:
    return _all(_at(versioning, "versioningConfiguration.status"), lambda status: status == "Enabled")


def _is_encrypted(encryption: PolicyResource) -> bool | None:
    path = "rules[*].applyServerSideEncryptionByDefault.sseAlgorithm"
    return _all(_at(encryption, path), lambda algorithm: algorithm in ALGORITHMS)


def _aborts_uploads(lifecycle: PolicyResource) -> bool | None:
    answers = [
        None if UNKNOWN in (status, days) else status == "Enabled" and days is not None and days >= 1
        for status, days in zip(
            _at(lifecycle, "rules[*].status"),
            _at(lifecycle, "rules[*].abortIncompleteMultipartUpload.daysAfterInitiation"),
            strict=True,
        )
    ]
    return True if True in answers else None if None in answers else False


def _demands_tls(policy: PolicyResource) -> bool | None:
    return _any(_at(policy, "policy"), lambda text: any(map(_denies_plain_http, _statements(text))))


def _statements(text: Any) -> list[Mapping[str, Any]]:
    try:
        found = json.loads(text)["Statement"]
    except (ValueError, KeyError, TypeError):
        return []
    return found if isinstance(found, list) else [found]


def _denies_plain_http(statement: Mapping[str, Any]) -> bool:
    condition = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
    values = condition if isinstance(condition, list) else [condition]
    return (
        statement.get("Effect") == "Deny"
        and statement.get("Principal") in ("*", {"AWS": "*"})
        and statement.get("Action") in ("s3:*", ["s3:*"], "*", ["*"])
        and _covers_bucket_and_objects(statement.get("Resource"))
        and [str(value).lower() for value in values] == ["false"]
    )


def _covers_bucket_and_objects(resources: Any) -> bool:
    names = resources if isinstance(resources, list) else [str(resources)]
    objects = [name for name in names if name.endswith("/*")]
    return "*" in names or (bool(objects) and {name[:-2] for name in objects} <= set(names))


# Which split resource carries a setting, how it is read, and what its absence means.
SETTINGS: dict[str, tuple[Check, str]] = {
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": (
        _blocks_public_access,
        f"public access is not blocked by all of {', '.join(BLOCKS)}",
    ),
    "aws:s3/bucketPolicy:BucketPolicy": (_demands_tls, "no policy denies requests without TLS"),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": (
        _is_encrypted,
        "default encryption is not declared",
    ),
    "aws:s3/bucketVersioning:BucketVersioning": (_is_versioned, "versioning is not enabled"),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": (
        _aborts_uploads,
        "no enabled lifecycle rule aborts incomplete multipart uploads",
    ),
}


def judge(stack: list[PolicyResource]) -> Iterator[Finding]:
    for bucket in of_type(stack, BUCKET):
        for resource_type, (check, gap) in SETTINGS.items():
            links = [
                (candidate, points_to(candidate, "bucket", bucket, keys=("bucket", "id")))
                for candidate in of_type(stack, resource_type)
            ]
            answers = [check(candidate) for candidate, linked in links if linked]
            answers += [None for _, linked in links if linked is None]
            if True in answers:
                continue
            if None in answers:
                yield unknown(bucket, f"{resource_type.rsplit(':', 1)[-1]} of this bucket")
            else:
                yield violation(bucket, gap)


RULE = StackRule(
    id="bucket-hardening",
    why="A bucket without these settings leaks data, loses overwritten objects or bills forgotten uploads.",
    fix="declare beside the bucket: BucketPublicAccessBlock, BucketPolicy with a TLS-only statement, "
    "BucketServerSideEncryptionConfiguration, BucketVersioning, BucketLifecycleConfiguration",
    severity=Severity.HIGH,
    types=frozenset({BUCKET}),
    judge=judge,
)
