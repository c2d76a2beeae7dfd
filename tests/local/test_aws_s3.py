"""S3 of the local cloud: uploads are compared with their checksums, conditional writes have one winner."""

from __future__ import annotations

import base64
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.aws.server import AwsServer
from tests.local.cloud_kit import client

BODY = b"forty-two bytes of a checkpoint, or nearly"


@pytest.fixture(scope="module")
def s3() -> Any:
    with AwsServer() as server:
        found = client("s3", server.endpoint)
        found.create_bucket(Bucket="bucket")
        yield found


def sha256(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def md5(body: bytes) -> str:
    return base64.b64encode(hashlib.md5(body).digest()).decode()


@pytest.mark.parametrize(
    "wrong",
    [{"ChecksumSHA256": sha256(b"other")}, {"ContentMD5": md5(b"other")}, {"ChecksumCRC32": "AAAAAA=="}],
)
def test_an_upload_with_a_wrong_checksum_is_refused_and_leaves_nothing(
    s3: Any, wrong: dict[str, str]
) -> None:
    with pytest.raises(ClientError) as fault:
        s3.put_object(Bucket="bucket", Key="wrong", Body=BODY, **wrong)
    assert fault.value.response["Error"]["Code"] == "BadDigest"
    assert fault.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    assert "Contents" not in s3.list_objects_v2(Bucket="bucket", Prefix="wrong")


def test_a_right_checksum_is_kept_and_shown(s3: Any) -> None:
    answer = s3.put_object(
        Bucket="bucket", Key="right", Body=BODY, ChecksumSHA256=sha256(BODY), ContentMD5=md5(BODY)
    )
    assert answer["ChecksumSHA256"] == sha256(BODY)
    head = s3.head_object(Bucket="bucket", Key="right", ChecksumMode="ENABLED")
    assert head["ChecksumSHA256"] == sha256(BODY)


def test_a_part_with_a_wrong_checksum_is_refused(s3: Any) -> None:
    upload = s3.create_multipart_upload(Bucket="bucket", Key="parts", ChecksumAlgorithm="SHA256")
    with pytest.raises(ClientError, match="BadDigest"):
        s3.upload_part(
            Bucket="bucket", Key="parts", UploadId=upload["UploadId"], PartNumber=1, Body=BODY,
            ChecksumSHA256=sha256(b"other"),
        )  # fmt: skip


def test_of_many_conditional_creations_at_once_one_wins(s3: Any) -> None:
    def create(number: int) -> int:
        try:
            s3.put_object(Bucket="bucket", Key="lock", Body=b"%d" % number, IfNoneMatch="*")
        except ClientError as fault:
            return fault.response["ResponseMetadata"]["HTTPStatusCode"]
        return 200

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(create, range(16)))
    assert codes == [200] + [412] * 15


def test_of_many_conditional_updates_of_one_version_one_wins(s3: Any) -> None:
    etag = s3.put_object(Bucket="bucket", Key="pointer", Body=b"0")["ETag"]

    def update(number: int) -> int:
        try:
            s3.put_object(Bucket="bucket", Key="pointer", Body=b"%d" % number, IfMatch=etag)
        except ClientError as fault:
            return fault.response["ResponseMetadata"]["HTTPStatusCode"]
        return 200

    with ThreadPoolExecutor(8) as pool:
        codes = sorted(pool.map(update, range(1, 17)))
    assert codes == [200] + [412] * 15


def policy(condition: dict[str, Any] | None) -> str:
    statement: dict[str, Any] = {
        "Effect": "Deny", "Principal": "*", "Action": "s3:*",
        "Resource": ["arn:aws:s3:::bucket", "arn:aws:s3:::bucket/*"],
    }  # fmt: skip
    return json.dumps(
        {"Version": "2012-10-17", "Statement": [statement | ({"Condition": condition} if condition else {})]}
    )


def test_a_policy_that_denies_plain_http_denies_nothing_on_loopback_and_others_still_do(s3: Any) -> None:
    s3.put_object(Bucket="bucket", Key="read", Body=BODY)
    try:
        s3.put_bucket_policy(Bucket="bucket", Policy=policy({"Bool": {"aws:SecureTransport": "false"}}))
        assert s3.get_object(Bucket="bucket", Key="read")["Body"].read() == BODY
        s3.put_bucket_policy(Bucket="bucket", Policy=policy(None))
        with pytest.raises(ClientError) as fault:
            s3.get_object(Bucket="bucket", Key="read")
        assert fault.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    finally:
        s3.delete_bucket_policy(Bucket="bucket")
