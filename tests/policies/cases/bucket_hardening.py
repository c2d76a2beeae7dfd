import json
from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

BUCKET = R("aws:s3/bucket:Bucket", {"bucket": "team-data"}, "data")
TLS_ONLY = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "s3:*",
    "Resource": ["arn:aws:s3:::team-data", "arn:aws:s3:::team-data/*"],
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}
SPLIT: dict[str, dict[str, Any]] = {
    "BucketPublicAccessBlock": {
        "blockPublicAcls": True,
        "blockPublicPolicy": True,
        "ignorePublicAcls": True,
        "restrictPublicBuckets": True,
    },
    "BucketPolicy": {"policy": json.dumps({"Version": "2012-10-17", "Statement": [TLS_ONLY]})},
    "BucketServerSideEncryptionConfiguration": {
        "rules": [
            {"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}, "bucketKeyEnabled": True}
        ]
    },
    "BucketVersioning": {"versioningConfiguration": {"status": "Enabled"}},
    "BucketLifecycleConfiguration": {
        "rules": [
            {"id": "expire", "status": "Enabled"},
            {
                "id": "abort",
                "status": "Enabled",
                "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7},
            },
        ]
    },
}


def split(kind: str, props: dict[str, Any], linked: bool) -> R:
    """A split resource: linked (the bucket's name comes from the bucket) or joined by the plain name."""
    type_ = f"aws:s3/{kind[0].lower()}{kind[1:]}:{kind}"
    if linked:
        return R(type_, {"bucket": NOT_YET, **props}, kind, {"bucket": ["data"]})
    return R(type_, {"bucket": "team-data", **props}, kind)


def stack(linked: bool = True, without: str = "", **changed: dict[str, Any]) -> list[R]:
    settings = {**SPLIT, **changed}
    return [BUCKET, *[split(kind, props, linked) for kind, props in settings.items() if kind != without]]


def policy(**changed: Any) -> dict[str, Any]:
    return {"policy": json.dumps({"Statement": [{**TLS_ONLY, **changed}]})}


CASES = [
    Case("all settings, linked at preview", Outcome.COMPLIANT, stack()),
    Case("all settings, by the plain name", Outcome.COMPLIANT, stack(linked=False)),
    *[Case(f"no {kind}", Outcome.VIOLATION, stack(without=kind)) for kind in SPLIT],
    Case(
        "settings of another bucket",
        Outcome.VIOLATION,
        [R("aws:s3/bucket:Bucket", {"bucket": "other"}, "other"), *stack(linked=False)],
        "other:",
    ),
    Case(
        "three of four blocks",
        Outcome.VIOLATION,
        stack(BucketPublicAccessBlock={**SPLIT["BucketPublicAccessBlock"], "ignorePublicAcls": False}),
        "public access",
    ),
    Case("a policy that allows", Outcome.VIOLATION, stack(BucketPolicy=policy(Effect="Allow")), "TLS"),
    Case(
        "a policy for one action", Outcome.VIOLATION, stack(BucketPolicy=policy(Action="s3:GetObject")), "TLS"
    ),
    Case(
        "a policy for the objects only",
        Outcome.VIOLATION,
        stack(BucketPolicy=policy(Resource=["arn:aws:s3:::team-data/*"])),
        "TLS",
    ),
    Case("a policy without condition", Outcome.VIOLATION, stack(BucketPolicy=policy(Condition={})), "TLS"),
    Case("no JSON", Outcome.VIOLATION, stack(BucketPolicy={"policy": "deny"}), "TLS"),
    Case(
        "versioning suspended",
        Outcome.VIOLATION,
        stack(BucketVersioning={"versioningConfiguration": {"status": "Suspended"}}),
        "versioning",
    ),
    Case(
        "encryption without rule",
        Outcome.VIOLATION,
        stack(BucketServerSideEncryptionConfiguration={"rules": []}),
    ),
    Case(
        "the aborting rule is disabled",
        Outcome.VIOLATION,
        stack(
            BucketLifecycleConfiguration={
                "rules": [
                    {"status": "Disabled", "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7}}
                ]
            }
        ),
        "multipart",
    ),
    Case("no bucket", Outcome.NOT_APPLICABLE, [split("BucketPolicy", {}, linked=False)]),
    Case("policy not known yet", Outcome.UNKNOWN, stack(BucketPolicy={"policy": NOT_YET}), "BucketPolicy"),
    Case(
        "rules not known yet",
        Outcome.UNKNOWN,
        stack(BucketLifecycleConfiguration={"rules": NOT_YET}),
        "Lifecycle",
    ),
    Case(
        "one block not known yet",
        Outcome.UNKNOWN,
        stack(BucketPublicAccessBlock={**SPLIT["BucketPublicAccessBlock"], "blockPublicAcls": NOT_YET}),
        "BucketPublicAccessBlock",
    ),
    Case(
        "whose setting it is, is not known yet",
        Outcome.UNKNOWN,
        [
            *stack(without="BucketVersioning"),
            R(
                "aws:s3/bucketVersioning:BucketVersioning",
                {"bucket": NOT_YET, **SPLIT["BucketVersioning"]},
                "loose",
            ),
        ],
        "BucketVersioning",
    ),
    Case(
        "an unknown policy hides no missing versioning",
        Outcome.VIOLATION,
        stack(without="BucketVersioning", BucketPolicy={"policy": NOT_YET}),
        "versioning",
    ),
]
