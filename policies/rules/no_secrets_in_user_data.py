"""User data is open to every process of the node and to whoever may describe it: no secret belongs there."""

from __future__ import annotations

import base64
import binascii
import gzip
import re
import zlib
from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import UNKNOWN, Finding, ResourceRule, leaves, unknown, violation

BASE64_PATHS = {  # a launch template takes base64 only; an instance has a property of its own for it
    "aws:ec2/launchTemplate:LaunchTemplate": ("userData",),
    "aws:ec2/launchConfiguration:LaunchConfiguration": ("userDataBase64",),
    "aws:ec2/instance:Instance": ("userDataBase64",),
}
PLAIN_PATHS = {
    "aws:ec2/launchConfiguration:LaunchConfiguration": ("userData",),
    "aws:ec2/instance:Instance": ("userData",),
}
# A literal secret does not begin like a reference ($VAR, $(command), <name>, ARN) and has some length.
PATTERNS = {
    "AWS access key id": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})"),
    "GitLab token": re.compile(r"\bglpat-[A-Za-z0-9_-]{20,}"),
    "Slack token": re.compile(r"\bxox[abprs]-[A-Za-z0-9-]{10,}"),
    "Hugging Face token": re.compile(r"\bhf_[A-Za-z0-9]{30,}"),
    "JSON web token": re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\."),
    "password in a URL": re.compile(r"://[^\s/:@$]+:[^\s/@$]{4,}@"),
    "literal secret": re.compile(
        r"(?i)(?:secret_?(?:access_?)?key|api_?key|passw(?:or)?d|passphrase|secret|token)"
        r"[\"']?\s*[=:]\s*[\"']?(?![$<{]|arn:)[^\s\"'$]{8,}"
    ),
}


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    for path in BASE64_PATHS[resource.resource_type]:
        for at, value in leaves(resource.props, path):
            if value is UNKNOWN:
                yield unknown(resource, at)
            elif value is not None:
                yield from _encoded(resource, at, value)
    for path in PLAIN_PATHS.get(resource.resource_type, ()):
        for at, value in leaves(resource.props, path):
            if value is UNKNOWN:
                yield unknown(resource, at)
            elif value is not None:
                yield from _scan(resource, at, value)


def _encoded(resource: ResourceValidationArgs, at: str, value: str) -> Iterator[Finding]:
    try:
        raw = base64.b64decode(value, validate=True)
        raw = gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw
    except (binascii.Error, OSError, EOFError, zlib.error):
        yield violation(resource, f"{at}: is not base64, so the node would not run it")
        return
    yield from _scan(resource, at, raw.decode("utf-8", errors="replace"))


def _scan(resource: ResourceValidationArgs, at: str, text: str) -> Iterator[Finding]:
    """Names the kind and the line of a find, never the find itself: messages end up in logs."""
    for number, line in enumerate(text.splitlines(), start=1):
        for kind, pattern in PATTERNS.items():
            if pattern.search(line):
                yield violation(resource, f"{at}: line {number} looks like it holds a secret ({kind})")
                break


RULE = ResourceRule(
    id="no-secrets-in-user-data",
    why="User data is readable by every process on the node and by everyone who may describe the template.",
    fix="write the secret's name only, and let the node fetch it with its role (Secrets Manager, SSM)",
    severity=Severity.CRITICAL,
    types=frozenset(BASE64_PATHS),
    judge=judge,
)
