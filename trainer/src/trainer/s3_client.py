"""The one S3 client that there is, and what its exceptions mean to people. No torch here."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import botocore.session
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

# Downloads under way, of one `Store`. S3's performance guidelines count 85 to 90 MB/s a connection.
PARALLEL = 64
BAD_DIGEST = "BadDigest"


class MissingObjectError(StoreError):
    """The object is not there."""


class IntegrityError(StoreError):
    """The object's bytes are not the expected ones, also after further tries."""


class NoSpaceError(StoreError):
    """The disk is full."""


def make_client(region: str | None = None, max_attempts: int = 8) -> BaseClient:
    """An S3 client with retries and time-outs; region None: the SDK's own search order.

    ``adaptive``: after a 503 SlowDown the whole client sends fewer calls a second until S3 takes more again, where
    ``standard`` would only wait longer between the tries of one call. S3 splits a prefix that is busy by itself.
    """
    config = Config(
        retries={"mode": "adaptive", "total_max_attempts": max_attempts},
        connect_timeout=5,
        read_timeout=60,
        max_pool_connections=2 * PARALLEL,
        # Where S3's own checksum is to be compared, the call asks for it: downloads are hashed by us anyway.
        response_checksum_validation="when_required",
    )
    try:
        # Without boto3, whose import takes half a second, also of commands that are over in less.
        return botocore.session.get_session().create_client("s3", region_name=region, config=config)
    except BotoCoreError as error:
        raise StoreError(f"S3: {error}; set AWS_REGION, or AWS_PROFILE to a profile that exists") from error


@contextmanager
def naming(action: str, bucket: str, key: str) -> Iterator[None]:
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
        if code == "InvalidRange":
            raise IntegrityError(f"{where}: the object is shorter than its manifest says") from error
        if code == BAD_DIGEST:
            raise IntegrityError(f"{where}: S3 got other bytes than were sent") from error
        raise StoreError(f"{where}: {_advice(code)} ({code}: {_one_line(error)})") from error
    except (NoCredentialsError, PartialCredentialsError) as error:
        raise StoreError(f"{where}: no usable AWS credentials: {_one_line(error)}") from error
    except FlexibleChecksumError as error:
        raise IntegrityError(f"{where}: {_one_line(error)}") from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NoSpaceError(f"{where}: the disk is full; make room and try again") from error
        raise StoreError(f"{where}: {_one_line(error)}") from error
    except BotoCoreError as error:
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
