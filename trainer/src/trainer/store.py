"""Objects in S3 as the trainer needs them: verified both ways, conditional where two writers may meet.

Everything goes through one boto3 client that honours the SDK's own variables (AWS_ENDPOINT_URL, AWS_REGION,
AWS_PROFILE and so on). Every call raises StoreError (exit code 21) when S3, the credentials or the clock are
at fault, with bucket and key in the message. No torch here.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    FlexibleChecksumError,
    NoCredentialsError,
    PartialCredentialsError,
)

from .errors import StoreError

if TYPE_CHECKING:
    from botocore.client import BaseClient

RANGE_BYTES = 8 << 20  # one ranged read
MULTIPART_BYTES = 64 << 20  # larger uploads go in parts of this size; S3 verifies the SHA-256 of each part
PARALLEL = 8
BODY_TRIES = 3  # of what the SDK does not repeat: bytes that came cut off or altered, in either direction
CONFLICT_TRIES = 8  # 409 ConditionalRequestConflict (another conditional write was under way)

BAD_DIGEST = "BadDigest"

Progress = Callable[[int], None]  # bytes moved since the last call; called from several threads


class MissingObjectError(StoreError):
    """The object is not there."""


class IntegrityError(StoreError):
    """The object's bytes are not the expected ones, also after further tries."""


@dataclass(frozen=True)
class Fetched:
    body: bytes
    etag: str


@dataclass(frozen=True)
class Head:
    size_bytes: int
    etag: str
    sha256: str | None  # hex; none where S3 holds no whole-object SHA-256 (uploaded in parts, or without one)


@dataclass(frozen=True)
class Put:
    """``written`` is False when the condition did not hold (412): somebody else wrote; nothing changed."""

    written: bool
    etag: str | None = None


@dataclass(frozen=True)
class Listed:
    key: str
    size_bytes: int


def make_client(region: str | None = None, max_attempts: int = 8) -> BaseClient:
    """An S3 client with adaptive retries and time-outs; region None: the SDK's own search order."""
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": max_attempts},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=2 * PARALLEL,
    )
    try:
        return boto3.client("s3", region_name=region, config=config)
    except BotoCoreError as error:
        raise StoreError(f"S3: {error}; set AWS_REGION, or AWS_PROFILE to a profile that exists") from error


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


@contextmanager
def _naming(action: str, bucket: str, key: str) -> Iterator[None]:
    """Turn the SDK's exceptions into StoreError with the object's name and what to do."""
    where = f"{action} s3://{bucket}/{key}"
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code in {"NoSuchKey", "NotFound", "404"}:
            raise MissingObjectError(f"{where}: there is no such object") from error
        if code in {"PreconditionFailed", "412"}:
            raise IntegrityError(f"{where}: the object changed while it was read") from error
        if code == BAD_DIGEST:
            raise IntegrityError(f"{where}: S3 got other bytes than were sent") from error
        raise StoreError(f"{where}: {_advice(code)} ({code}: {_one_line(error)})") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreError(f"{where}: no usable AWS credentials: {_one_line(error)}") from error
    except FlexibleChecksumError as error:
        raise IntegrityError(f"{where}: {_one_line(error)}") from error
    except (BotoCoreError, Boto3Error, OSError) as error:
        if f"({BAD_DIGEST})" in str(error):  # of an upload in parts
            raise IntegrityError(f"{where}: S3 got other bytes than were sent") from error
        raise StoreError(f"{where}: {_one_line(error)}") from error


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _advice(code: str) -> str:
    if code == "RequestTimeTooSkewed":
        return "this machine's clock is more than 15 minutes off; wait for its time service and retry"
    if code in {"AccessDenied", "403", "AllAccessDisabled"}:
        return "access denied; check the role's policy (a missing object also looks so without ListBucket)"
    if code in {"ExpiredToken", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"}:
        return "the credentials are not valid (any more); renew them"
    if code == "NoSuchBucket":
        return "there is no such bucket; check the stack's outputs"
    return "S3 refused the call"


class Store:
    """S3 by bucket and key; safe to use from several threads."""

    def __init__(self, client: BaseClient | None = None, region: str | None = None) -> None:
        self._s3: Any = client or make_client(region)

    def get(self, bucket: str, key: str) -> Fetched | None:
        """The whole object, or None where there is none."""
        try:
            with _naming("read", bucket, key):
                answer, body = self._get_object(Bucket=bucket, Key=key)
        except MissingObjectError:
            return None
        size = answer["ContentLength"]
        if len(body) != size:
            raise IntegrityError(f"read s3://{bucket}/{key}: got {len(body)} of {size} bytes")
        return Fetched(body, answer["ETag"])

    def _get_object(self, **request: str) -> tuple[Any, bytes]:
        """The SDK repeats calls, but not the reading of an answer's body."""
        for left in reversed(range(BODY_TRIES)):
            answer = self._s3.get_object(**request)
            try:
                return answer, answer["Body"].read()
            except BotoCoreError:  # cut off, stalled, or not what its checksum says
                if not left:
                    raise
        raise AssertionError("unreachable")

    def head(self, bucket: str, key: str) -> Head | None:
        try:
            with _naming("look up", bucket, key):
                answer = self._s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        except MissingObjectError:
            return None
        checksum = answer.get("ChecksumSHA256")
        in_parts = "-" in answer["ETag"] or answer.get("ChecksumType") == "COMPOSITE"
        sha256 = base64.b64decode(checksum).hex() if checksum and not in_parts else None
        return Head(answer["ContentLength"], answer["ETag"], sha256)

    def list_objects(self, bucket: str, prefix: str) -> list[Listed]:
        """All objects below ``prefix``, in key order."""
        with _naming("list", bucket, prefix):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return [Listed(item["Key"], item["Size"]) for page in pages for item in page.get("Contents", [])]

    def delete(self, bucket: str, key: str) -> None:
        with _naming("delete", bucket, key):
            self._s3.delete_object(Bucket=bucket, Key=key)

    def put(
        self,
        bucket: str,
        key: str,
        body: bytes,
        *,
        only_if_absent: bool = False,
        only_if_etag: str | None = None,
    ) -> Put:
        """Write a small object; S3 verifies its SHA-256 on arrival.

        ``only_if_absent`` and ``only_if_etag`` (If-None-Match, If-Match) exclude each other. 409 is retried
        with jitter, so is a body that arrived altered; 412 (and an object that is gone under If-Match) is the
        answer ``written=False``.
        """
        condition = {"IfNoneMatch": "*"} if only_if_absent else {}
        if only_if_etag is not None:
            condition = {"IfMatch": only_if_etag}
        for attempt in range(CONFLICT_TRIES):
            try:
                answer = self._s3.put_object(
                    Bucket=bucket, Key=key, Body=body, **_checksum(body), **condition
                )
                return Put(True, answer["ETag"])
            except ClientError as error:
                status = error.response["ResponseMetadata"].get("HTTPStatusCode")
                if status == 412 or (status == 404 and only_if_etag is not None):
                    return self._own_retry(bucket, key, body, error)
                altered = error.response["Error"]["Code"] == BAD_DIGEST
                last = attempt == (BODY_TRIES if altered else CONFLICT_TRIES) - 1
                if last or (status != 409 and not altered):
                    with _naming("write", bucket, key):
                        raise
                time.sleep(random.uniform(0, 0.1 * 2**attempt))
            except BotoCoreError:
                with _naming("write", bucket, key):
                    raise
        raise AssertionError("unreachable")

    def _own_retry(self, bucket: str, key: str, body: bytes, error: ClientError) -> Put:
        """A write whose answer got lost is repeated by the SDK and then meets itself: that is no conflict."""
        if error.response["ResponseMetadata"].get("RetryAttempts", 0) > 0:
            there = self.get(bucket, key)
            if there is not None and there.body == body:
                return Put(True, there.etag)
        return Put(False)

    def upload(
        self, bucket: str, key: str, path: Path, sha256: str, progress: Progress | None = None
    ) -> None:
        """Write a file and prove that it arrived: S3 verifies SHA-256 on arrival, then it is looked up.

        Where S3 holds no SHA-256 of the whole object and it did not go in parts, it is read back and hashed.
        Bytes that arrived altered are sent again. Raises IntegrityError when the object is not the file even then.
        """
        in_parts = path.stat().st_size > MULTIPART_BYTES
        parts_progress = progress if in_parts else None
        for left in reversed(range(BODY_TRIES)):
            try:
                self._upload(bucket, key, path, sha256, parts_progress)
                break
            except IntegrityError:
                parts_progress = None  # counted already
                if not left:
                    raise
        if progress and not in_parts:
            progress(path.stat().st_size)

    def _upload(self, bucket: str, key: str, path: Path, sha256: str, progress: Progress | None) -> None:
        size = path.stat().st_size
        with _naming("write", bucket, key):
            if size > MULTIPART_BYTES:
                limits = TransferConfig(
                    multipart_threshold=MULTIPART_BYTES,
                    multipart_chunksize=MULTIPART_BYTES,
                    max_concurrency=PARALLEL,
                )
                extra = {"ChecksumAlgorithm": "SHA256"}
                self._s3.upload_file(
                    str(path), bucket, key, ExtraArgs=extra, Config=limits, Callback=progress
                )
            else:
                checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
                with open(path, "rb") as file:
                    self._s3.put_object(Bucket=bucket, Key=key, Body=file, ChecksumSHA256=checksum)
        head = self.head(bucket, key)
        if head is None or head.size_bytes != size:
            raise IntegrityError(f"write s3://{bucket}/{key}: {size} bytes sent, not all of them found")
        found = head.sha256
        if found is None and size <= MULTIPART_BYTES:
            back = self.get(bucket, key)
            found = hashlib.sha256(back.body).hexdigest() if back else "nothing"
        if found is not None and found != sha256:
            raise IntegrityError(f"write s3://{bucket}/{key}: SHA-256 {sha256} sent, {found} found")

    def download(
        self,
        bucket: str,
        key: str,
        target: Path,
        size_bytes: int,
        sha256: str,
        progress: Progress | None = None,
    ) -> None:
        """Fetch an object of known size and SHA-256 to ``target``; a file that is already right is kept.

        Ranged reads in parallel, pinned to one ETag, into ``<target>.part``; length and SHA-256 are compared
        before the file gets its name. A mismatch is tried once more. Raises MissingObjectError,
        IntegrityError, StoreError.
        """
        if target.is_file() and target.stat().st_size == size_bytes and sha256_of(target) == sha256:
            if progress:
                progress(size_bytes)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        part = target.with_name(target.name + ".part")
        try:
            self._fetch_ranges(bucket, key, part, size_bytes, sha256, progress)
        except IntegrityError:
            self._fetch_ranges(bucket, key, part, size_bytes, sha256, None)
        os.replace(part, target)
        fsync_dir(target.parent)

    def _fetch_ranges(
        self, bucket: str, key: str, part: Path, size: int, sha256: str, progress: Progress | None
    ) -> None:
        where = f"s3://{bucket}/{key}"
        head = self.head(bucket, key)
        if head is None:
            raise MissingObjectError(f"read {where}: there is no such object")
        if head.size_bytes != size:
            raise IntegrityError(f"{where} has {head.size_bytes} bytes, its manifest says {size}")
        with _naming("fetch", bucket, key), open(part, "wb") as file:
            file.truncate(size)

            def fetch(start: int) -> None:
                end = min(start + RANGE_BYTES, size)
                span = f"bytes={start}-{end - 1}"
                _, block = self._get_object(Bucket=bucket, Key=key, Range=span, IfMatch=head.etag)
                if len(block) != end - start:
                    raise IntegrityError(f"{where}: {span} came with {len(block)} bytes")
                os.pwrite(file.fileno(), block, start)
                if progress:
                    progress(len(block))

            with ThreadPoolExecutor(PARALLEL) as pool:
                list(pool.map(fetch, range(0, size, RANGE_BYTES)))
            os.fsync(file.fileno())
        if (found := sha256_of(part)) != sha256:
            part.unlink()
            raise IntegrityError(f"{where} has SHA-256 {found}, its manifest says {sha256}")


def _checksum(body: bytes) -> dict[str, str]:
    return {"ChecksumSHA256": base64.b64encode(hashlib.sha256(body).digest()).decode()}


def fsync_dir(path: Path) -> None:
    """Make a rename in ``path`` survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
