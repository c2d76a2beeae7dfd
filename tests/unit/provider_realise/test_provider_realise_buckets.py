"""Local mode: buckets with their parts and objects."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from pulumi.runtime import rpc

from localcloud.provider.service import Fault
from localcloud.provider.values import SIGNATURE, Asset
from tests.unit.emulated_stack import REGION, Stack


def bucket_parts(stack: Stack, bucket: str) -> None:
    stack.make(
        "aws:s3/bucketVersioning:BucketVersioning",
        "versioning",
        bucket=bucket,
        versioningConfiguration={"status": "Enabled"},
    )
    stack.make(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "encryption",
        bucket=bucket,
        rules=[{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms"}, "bucketKeyEnabled": True}],
    )
    stack.make(
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "private",
        bucket=bucket,
        blockPublicAcls=True,
        blockPublicPolicy=True,
        ignorePublicAcls=True,
        restrictPublicBuckets=True,
    )
    stack.make(
        "aws:s3/bucketOwnershipControls:BucketOwnershipControls",
        "owner",
        bucket=bucket,
        rule={"objectOwnership": "BucketOwnerEnforced"},
    )
    stack.make("aws:s3/bucketPolicy:BucketPolicy", "tls", bucket=bucket, policy=tls_only(bucket))
    stack.make(
        "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration",
        "lifecycle",
        bucket=bucket,
        transitionDefaultMinimumObjectSize="all_storage_classes_128K",
        rules=[
            {
                "id": "parts",
                "status": "Enabled",
                "abortIncompleteMultipartUpload": {"daysAfterInitiation": 7},
            },
            {
                "id": "old",
                "status": "Enabled",
                "filter": {"prefix": "runs/"},
                "noncurrentVersionExpiration": {"noncurrentDays": 30},
            },
        ],
    )


def tls_only(bucket: str) -> str:
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": ["s3:*"],
        "Resource": [f"arn:aws:s3:::{bucket}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def test_a_bucket_is_hardened_by_its_parts_and_goes_with_its_objects_where_asked(stack: Stack) -> None:
    bucket = stack.make("aws:s3/bucket:Bucket", "artifacts", bucket="artifacts-1", forceDestroy=True)
    assert bucket["bucketRegionalDomainName"] == f"artifacts-1.s3.{REGION}.amazonaws.com"
    bucket_parts(stack, bucket.id)
    s3 = stack.clients("s3")
    assert s3.get_bucket_versioning(Bucket=bucket.id)["Status"] == "Enabled"
    rule = s3.get_bucket_encryption(Bucket=bucket.id)["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert (rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"], rule["BucketKeyEnabled"]) == (
        "aws:kms",
        True,
    )
    assert set(s3.get_public_access_block(Bucket=bucket.id)["PublicAccessBlockConfiguration"].values()) == {
        True
    }
    policy = s3.get_bucket_policy(Bucket=bucket.id)["Policy"]
    assert json.loads(policy) == json.loads(tls_only(bucket.id))
    rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket.id)["Rules"]
    assert [(r["ID"], r["Filter"]["Prefix"]) for r in rules] == [("parts", ""), ("old", "runs/")]
    body = {"bucket": bucket.id, "key": "groups/a/node.json", "contentType": "application/json"}
    stack.make("aws:s3/bucketObjectv2:BucketObjectv2", "document", content="{}", **body)
    stack.change("document", content='{"a":1}', **body)
    s3.put_object(Bucket=bucket.id, Key="runs/1/latest", Body=b"written by a node")
    read = s3.get_object(Bucket=bucket.id, Key=body["key"])
    assert (read["Body"].read(), read["ContentType"]) == (b'{"a":1}', "application/json")


def test_a_file_arrives_with_its_bytes(stack: Stack, tmp_path: Any) -> None:
    release = tmp_path / "release.tar"
    release.write_bytes(bytes(range(256)) * 1000)
    sha256 = hashlib.sha256(release.read_bytes()).hexdigest()
    source = Asset({SIGNATURE: rpc._special_asset_sig, "path": str(release), "hash": sha256})
    stack.make("aws:s3/bucket:Bucket", "bucket", bucket="b-1", forceDestroy=True)
    stack.make("aws:s3/bucketObjectv2:BucketObjectv2", "release", bucket="b-1", key="r.tar", source=source)
    body = stack.clients("s3").get_object(Bucket="b-1", Key="r.tar")["Body"].read()
    assert hashlib.sha256(body).hexdigest() == sha256


def test_a_bucket_with_foreign_objects_is_not_destroyed_unasked(stack: Stack) -> None:
    stack.make("aws:s3/bucket:Bucket", "data", bucket="data-1")
    stack.clients("s3").put_object(Bucket="data-1", Key="shard", Body=b"x")
    with pytest.raises(Fault, match=r"^urn:pulumi:local::p::aws:s3/bucket:Bucket::data: .*BucketNotEmpty"):
        stack.delete("data")
    stack.clients("s3").delete_object(Bucket="data-1", Key="shard")
