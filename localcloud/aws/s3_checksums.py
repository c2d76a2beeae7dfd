"""S3 compares the checksum that came with an upload with the bytes; moto only stores it."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Any

from moto.s3.exceptions import S3ClientError
from moto.s3.responses import S3Response
from moto.s3.utils import compute_checksum

# CRC32C and CRC64NVME need libraries that moto falls back from silently; they are stored, not judged.
JUDGED = ("SHA256", "SHA1", "CRC32")
TRAILERS = {f"x-amz-checksum-{algorithm.lower()}": algorithm for algorithm in JUDGED}

_get_checksum = S3Response._get_checksum


class BadDigest(S3ClientError):
    code = "BadDigest"


def get_checksum(response: S3Response, response_headers: dict[str, Any]) -> tuple[str, str | None]:
    """moto's look-up, which every upload passes through, plus the comparison.

    A checksum header without the SDK's algorithm header counts too: so says S3, and so does boto3 send it
    when the caller gives the checksum.
    """
    body: bytes = response.body or b""
    given_md5 = response.headers.get("Content-MD5")
    if (
        given_md5
        and given_md5 != base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()
    ):
        raise BadDigest("The Content-MD5 you specified did not match what we received.")
    algorithm, value = _get_checksum(response, response_headers)
    if not algorithm:
        for candidate in JUDGED:
            sent = response.headers.get(f"x-amz-checksum-{candidate.lower()}")
            if sent:
                algorithm, value = candidate, sent
                response_headers[f"x-amz-checksum-{candidate.lower()}"] = sent
    if not algorithm and (name := response.headers.get("x-amz-trailer", "").lower()) in TRAILERS:
        # the same without the algorithm header, at the end of an aws-chunked body; the body is decoded by now
        found = re.search(name.encode() + rb":([^\r\n]+)", response.raw_body or b"")
        algorithm, value = TRAILERS[name], found.group(1).decode().strip() if found else None
        if value:
            response_headers[name] = value
    if algorithm in JUDGED and value and value != compute_checksum(body, algorithm=algorithm).decode():
        raise BadDigest(f"The {algorithm} you specified did not match the calculated checksum.")
    return algorithm, value
