"""Errors as S3 words them. Source: Amazon S3 API reference, "Error responses"."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from email.utils import formatdate
from xml.sax.saxutils import escape

from .rules import Kind

SKEW = timedelta(minutes=20)  # S3 allows 15
ALLOWED_SKEW_MILLISECONDS = 900_000


@dataclass(frozen=True)
class S3Error:
    status: int
    code: str
    message: str


ERRORS: dict[Kind, S3Error] = {
    "internal-error": S3Error(500, "InternalError", "We encountered an internal error. Please try again."),
    "slow-down": S3Error(503, "SlowDown", "Please reduce your request rate."),
    "conflict": S3Error(
        409,
        "ConditionalRequestConflict",
        "The conditional request cannot succeed due to a conflicting operation against this resource.",
    ),
    "precondition-failed": S3Error(
        412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold"
    ),
    "expired-token": S3Error(400, "ExpiredToken", "The provided token has expired."),
    "time-skewed": S3Error(
        403,
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
    ),
}
UNAVAILABLE = S3Error(503, "ServiceUnavailable", "Service is unable to handle request.")


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


def answer(error: S3Error, now: datetime) -> Answer:
    """The whole answer, with request ids of its own; `now` has a time zone."""
    request_id = secrets.token_hex(8).upper()
    host_id = base64.b64encode(secrets.token_bytes(56)).decode()
    details = ""
    if error.code == "RequestTimeTooSkewed":
        asked, server = now - SKEW, now.astimezone(timezone.utc)
        details = (
            f"<RequestTime>{asked:%Y%m%dT%H%M%SZ}</RequestTime>"
            f"<ServerTime>{server:%Y-%m-%dT%H:%M:%SZ}</ServerTime>"
            f"<MaxAllowedSkewMilliseconds>{ALLOWED_SKEW_MILLISECONDS}</MaxAllowedSkewMilliseconds>"
        )
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        f"<Error><Code>{error.code}</Code><Message>{escape(error.message)}</Message>{details}"
        f"<RequestId>{request_id}</RequestId><HostId>{host_id}</HostId></Error>"
    ).encode()
    headers = [
        ("x-amz-request-id", request_id),
        ("x-amz-id-2", host_id),
        ("Content-Type", "application/xml"),
        ("Content-Length", str(len(body))),
        ("Date", formatdate(now.timestamp(), usegmt=True)),
        ("Server", "AmazonS3"),
    ]
    return Answer(error.status, headers, body)
