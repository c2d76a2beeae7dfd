"""Buckets, their split sub-resources and objects."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

from ..values import Asset, Tree
from .call import Call, Made, Realiser
from .fit import parameters


def _bucket_create(call: Call) -> Made:
    s3 = call.clients("s3")
    where: dict[str, Any] = {}
    if call.place.region != "us-east-1":
        where = {"CreateBucketConfiguration": {"LocationConstraint": call.place.region}}
    lock = {"ObjectLockEnabledForBucket": True} if call["objectLockEnabled"] else {}
    s3.create_bucket(Bucket=call.name, **where, **lock)
    _bucket_tags(call, call.name)
    return call.name, {}


def _bucket_tags(call: Call, bucket: str) -> None:
    if call.tags:
        call.clients("s3").put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": call.tag_list()})
    elif call.old_tags:
        call.clients("s3").delete_bucket_tagging(Bucket=bucket)


def _versions(s3: Any, bucket: str, prefix: str = "") -> Iterator[dict[str, str]]:
    for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket, Prefix=prefix):
        for item in (*page.get("Versions", []), *page.get("DeleteMarkers", [])):
            yield {"Key": item["Key"], "VersionId": item["VersionId"]}


def _bucket_delete(call: Call) -> None:
    s3 = call.clients("s3")
    if call.state("forceDestroy"):
        versions = list(_versions(s3, call.id))
        for start in range(0, len(versions), 1000):
            s3.delete_objects(
                Bucket=call.id, Delete={"Objects": versions[start : start + 1000], "Quiet": True}
            )
    s3.delete_bucket(Bucket=call.id)


def _part(put: str, remove: str | None, read: str, wrap: Callable[[Call], dict[str, Tree]]) -> Realiser:
    """A sub-resource that is put whole: `wrap` gives the put call's parameters besides the bucket."""

    def write(call: Call) -> None:
        getattr(call.clients("s3"), put)(Bucket=call["bucket"], **wrap(call))

    def create(call: Call) -> Made:
        write(call)
        return call["bucket"], {}

    def delete(call: Call) -> None:
        if remove:
            getattr(call.clients("s3"), remove)(Bucket=call.state("bucket"))

    return Realiser(create, delete, lambda call: getattr(call.clients("s3"), read)(Bucket=call.id), write)


def _fitted(operation: str, tree: dict[str, Tree]) -> Callable[[Call], dict[str, Any]]:
    """Parameters by botocore's model; "@x" in `tree` stands for the input x."""

    def filled(call: Call, value: Tree) -> Tree:
        if isinstance(value, dict):
            return {key: filled(call, item) for key, item in value.items()}
        return call[value[1:]] if isinstance(value, str) and value.startswith("@") else value

    return lambda call: parameters(call.clients("s3"), operation, filled(call, tree))


def _lifecycle(call: Call) -> dict[str, Any]:
    wanted = {"lifecycleConfiguration": {"rules": call["rules"]}}
    result = parameters(call.clients("s3"), "PutBucketLifecycleConfiguration", wanted)
    for rule in result["LifecycleConfiguration"]["Rules"]:
        if "Prefix" not in rule:
            rule.setdefault("Filter", {"Prefix": ""})  # S3 wants to know what the rule is for: everything
    if size := call["transitionDefaultMinimumObjectSize"]:
        result["TransitionDefaultMinimumObjectSize"] = size
    return result


def _body(call: Call) -> bytes:
    if isinstance(call["source"], Asset):
        return call["source"].content()
    if call["contentBase64"]:
        return base64.b64decode(call["contentBase64"])
    return str(call["content"] or "").encode()


_OBJECT = {"kmsKeyId": "SSEKMSKeyId", "websiteRedirect": "WebsiteRedirectLocation"}
_NOT_IN_PUT = ("source", "content", "contentBase64", "etag", "sourceHash", "forceDestroy", "overrideProvider")


def _object_put(call: Call) -> dict[str, Tree]:
    wanted = call.fit("s3", "PutObject", _OBJECT, *_NOT_IN_PUT)
    if call.tags:
        wanted["Tagging"] = "&".join(f"{key}={value}" for key, value in sorted(call.tags.items()))
    made = call.clients("s3").put_object(**wanted, Body=_body(call))
    real: dict[str, Tree] = {"etag": made["ETag"].strip('"'), "versionId": made.get("VersionId", "")}
    if "ChecksumSHA256" in made:
        real["checksumSha256"] = made["ChecksumSHA256"]
    return real


def _object_create(call: Call) -> Made:
    return f"{call['bucket']}/{call['key']}", _object_put(call)


def _object_delete(call: Call) -> None:
    s3, key = call.clients("s3"), call.state("key")
    for version in _versions(s3, call.state("bucket"), key):
        if version["Key"] == key:
            s3.delete_object(Bucket=call.state("bucket"), **version)


_OBJECT_REALISER = Realiser(
    _object_create,
    _object_delete,
    lambda call: call.clients("s3").head_object(Bucket=call.state("bucket"), Key=call.state("key")),
    _object_put,
)

REALISERS: dict[str, Realiser] = {
    "aws:s3/bucket:Bucket": Realiser(
        _bucket_create,
        _bucket_delete,
        lambda call: call.clients("s3").head_bucket(Bucket=call.id),
        lambda call: _bucket_tags(call, call.id),
    ),
    "aws:s3/bucketVersioning:BucketVersioning": _part(
        "put_bucket_versioning",
        None,
        "get_bucket_versioning",
        _fitted("PutBucketVersioning", {"versioningConfiguration": "@versioningConfiguration"}),
    ),
    "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration": _part(
        "put_bucket_encryption",
        "delete_bucket_encryption",
        "get_bucket_encryption",
        _fitted("PutBucketEncryption", {"serverSideEncryptionConfiguration": {"rules": "@rules"}}),
    ),
    "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": _part(
        "put_public_access_block",
        "delete_public_access_block",
        "get_public_access_block",
        _fitted(
            "PutPublicAccessBlock",
            {
                "publicAccessBlockConfiguration": {
                    key: f"@{key}"
                    for key in (
                        "blockPublicAcls",
                        "blockPublicPolicy",
                        "ignorePublicAcls",
                        "restrictPublicBuckets",
                    )
                }
            },
        ),
    ),
    "aws:s3/bucketOwnershipControls:BucketOwnershipControls": _part(
        "put_bucket_ownership_controls",
        "delete_bucket_ownership_controls",
        "get_bucket_ownership_controls",
        _fitted("PutBucketOwnershipControls", {"ownershipControls": {"rules": "@rule"}}),
    ),
    "aws:s3/bucketPolicy:BucketPolicy": _part(
        "put_bucket_policy",
        "delete_bucket_policy",
        "get_bucket_policy",
        _fitted("PutBucketPolicy", {"policy": "@policy"}),
    ),
    "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration": _part(
        "put_bucket_lifecycle_configuration",
        "delete_bucket_lifecycle",
        "get_bucket_lifecycle_configuration",
        _lifecycle,
    ),
    "aws:s3/bucketObject:BucketObject": _OBJECT_REALISER,
    "aws:s3/bucketObjectv2:BucketObjectv2": _OBJECT_REALISER,
}
