"""Objects in S3 as the trainer needs them: verified both ways, conditional where two writers may meet.

Everything goes through one client that honours the SDK's own variables (AWS_ENDPOINT_URL, AWS_REGION,
AWS_PROFILE and so on). Every call raises StoreError (exit code 21) when S3, the credentials or the clock are
at fault, with bucket and key in the message. No torch here.
"""

from __future__ import annotations

import base64
import hashlib
import random
import time
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from .errors import StoreError
from .part_file import PartFile, fsync_dir, sha256_of
from .s3_client import (
    BAD_DIGEST,
    PARALLEL,
    IntegrityError,
    MissingObjectError,
    NoSpaceError,
    make_client,
    naming,
)

if TYPE_CHECKING:
    from botocore.client import BaseClient

RANGE_BYTES = 32 << 20  # one ranged read; a shard of the usual size comes in one, and is hashed as it comes
CHUNK_BYTES = 256 << 10  # read and written at a time: larger ones cost page faults, smaller ones calls
MULTIPART_BYTES = 64 << 20  # larger uploads go in parts of this size; S3 verifies the SHA-256 of each part
PARALLEL_PARTS = 8  # of one upload
BODY_TRIES = 3  # of what the SDK does not repeat: bytes that came cut off or altered, in either direction
CONFLICT_TRIES = 8  # 409 ConditionalRequestConflict (another conditional write was under way)

__all__ = [
    "Fetched",
    "Head",
    "IntegrityError",
    "Listed",
    "MissingObjectError",
    "NoSpaceError",
    "Progress",
    "Put",
    "Store",
    "fsync_dir",
    "make_client",
    "sha256_of",
]

Progress = Callable[[int], None]  # bytes moved since the last call; called from several threads


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


class Store:
    """S3 by bucket and key; safe to use from several threads."""

    def __init__(self, client: BaseClient | None = None, region: str | None = None) -> None:
        self._s3: Any = client or make_client(region)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """For the ranges of all downloads together, which never outnumber the client's connections."""
        return ThreadPoolExecutor(PARALLEL, thread_name_prefix="s3")

    def get(self, bucket: str, key: str) -> Fetched | None:
        """The whole object, or None where there is none."""
        try:
            with naming("read", bucket, key):
                answer, body = self._get_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
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
            with naming("look up", bucket, key):
                answer = self._s3.head_object(Bucket=bucket, Key=key, ChecksumMode="ENABLED")
        except MissingObjectError:
            return None
        checksum = answer.get("ChecksumSHA256")
        in_parts = "-" in answer["ETag"] or answer.get("ChecksumType") == "COMPOSITE"
        sha256 = base64.b64decode(checksum).hex() if checksum and not in_parts else None
        return Head(answer["ContentLength"], answer["ETag"], sha256)

    def list_objects(self, bucket: str, prefix: str) -> list[Listed]:
        """All objects below ``prefix``, in key order."""
        with naming("list", bucket, prefix):
            pages = self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
            return [Listed(item["Key"], item["Size"]) for page in pages for item in page.get("Contents", [])]

    def delete(self, bucket: str, key: str) -> None:
        with naming("delete", bucket, key):
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
                    with naming("write", bucket, key):
                        raise
                time.sleep(random.uniform(0, 0.1 * 2**attempt))
            except BotoCoreError:
                with naming("write", bucket, key):
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
        with naming("write", bucket, key):
            if size > MULTIPART_BYTES:
                self._upload_in_parts(bucket, key, path, progress)
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

    def _upload_in_parts(self, bucket: str, key: str, path: Path, progress: Progress | None) -> None:
        from s3transfer.manager import TransferConfig, TransferManager
        from s3transfer.subscribers import BaseSubscriber

        class Telling(BaseSubscriber):
            def on_progress(self, future: Any, bytes_transferred: int, **_rest: Any) -> None:
                if progress:
                    progress(bytes_transferred)

        limits = TransferConfig(
            multipart_threshold=MULTIPART_BYTES,
            multipart_chunksize=MULTIPART_BYTES,
            max_request_concurrency=PARALLEL_PARTS,
        )
        with TransferManager(self._s3, limits) as manager:
            manager.upload(str(path), bucket, key, {"ChecksumAlgorithm": "SHA256"}, [Telling()]).result()

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

        Ranged reads in parallel, pinned to one ETag; ranges that came before a crash are not fetched again. Length
        and SHA-256 are compared before the file gets its name. A mismatch is tried once more, from the beginning.
        Raises MissingObjectError, IntegrityError, StoreError.
        """
        if target.is_file() and target.stat().st_size == size_bytes and sha256_of(target) == sha256:
            if progress:
                progress(size_bytes)
            return
        with naming("fetch", bucket, key), closing(PartFile(target, size_bytes, RANGE_BYTES)) as part:
            try:
                self._fill(part, bucket, key, size_bytes, sha256, progress)
            except IntegrityError:
                part.discard()
                self._fill(part, bucket, key, size_bytes, sha256, None)

    def _fill(
        self, part: PartFile, bucket: str, key: str, size: int, sha256: str, progress: Progress | None
    ) -> None:
        missing = part.missing()
        if progress and part.etag:
            progress(size - sum(end - start for start, end in missing))

        def fetch(span: tuple[int, int]) -> None:
            self._fetch_range(part, bucket, key, span, size, progress)

        if part.etag is None and missing:  # the first range tells the ETag, which pins all the others
            fetch(missing.pop(0))
        futures = [self._pool.submit(fetch, span) for span in missing]
        wait(futures, return_when=FIRST_EXCEPTION)
        for future in futures:
            future.cancel()
        wait(futures)  # none may write when the file is closed
        for future in futures:
            if not future.cancelled():
                future.result()
        if (found := part.finish(sha256)) != sha256:
            raise IntegrityError(f"s3://{bucket}/{key} has SHA-256 {found}, its manifest says {sha256}")

    def _fetch_range(
        self,
        part: PartFile,
        bucket: str,
        key: str,
        span: tuple[int, int],
        size: int,
        progress: Progress | None,
    ) -> None:
        """Also repeats what the SDK does not: the reading of a body that is cut off or stalls."""
        start, end = span
        where, wanted = f"s3://{bucket}/{key}", f"bytes={start}-{end - 1}"
        pinned = {"IfMatch": part.etag} if part.etag else {}
        for left in reversed(range(BODY_TRIES)):
            with naming("fetch", bucket, key):
                answer = self._s3.get_object(Bucket=bucket, Key=key, Range=wanted, **pinned)
            total = int(answer["ContentRange"].rpartition("/")[2])
            if total != size:
                raise IntegrityError(f"{where} has {total} bytes, its manifest says {size}")
            part.pin(answer["ETag"])
            place = start
            try:
                with naming("fetch", bucket, key):
                    while chunk := answer["Body"].read(CHUNK_BYTES):
                        part.write(place, chunk)
                        place += len(chunk)
            except NoSpaceError:
                raise
            except StoreError:
                if not left:
                    raise
                continue
            if place != end:
                raise IntegrityError(f"{where}: {wanted} came with {place - start} bytes")
            part.keep(start)
            if progress:
                progress(end - start)
            return


def _checksum(body: bytes) -> dict[str, str]:
    return {"ChecksumSHA256": base64.b64encode(hashlib.sha256(body).digest()).decode()}
