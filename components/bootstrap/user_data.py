"""User data: a handful of variables over the fixed script in ``user_data.sh``."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

SCRIPT = Path(__file__).with_name("user_data.sh")
MAX_BYTES = 16_384  # EC2 user guide: the limit holds for the raw bytes, before base64
COMMENT_LINE = re.compile(r"^ *# .*\n|^#\n", re.MULTILINE)


class UserDataTooLong(ValueError):
    """EC2 would refuse the launch template, and only at `up`."""


@dataclass(frozen=True)
class BootVariables:
    """What one group's script differs in from another's. The names are the script's, in capitals."""

    stack: str
    group: str
    region: str
    auto_scaling_group: str
    document_uri: str
    document_sha256: str
    schema_version: int  # of the node documents that the script understands
    interpreter: str  # the image's Python, an absolute path
    aws_client: str  # the image's AWS command, a path or a name on PATH
    launching_hook: str
    terminating_hook: str
    on_failure: str  # replace: the launch is abandoned; report: the node joins all the same
    max_replacements: int  # failed boots of the group an hour before its launches are suspended
    metric_namespace: str
    log_group: str


def render_user_data(variables: BootVariables) -> str:
    """The script as EC2 gets it, not yet encoded, without its comments: those are for readers of this repository.

    Raises UserDataTooLong above 16 384 bytes.
    """
    shebang, _, body = SCRIPT.read_text("utf-8").partition("\n")
    body = COMMENT_LINE.sub("", body)
    assignments = [
        f"{field.name.upper()}={_quoted(str(getattr(variables, field.name)))}" for field in fields(variables)
    ]
    text = "\n".join([shebang, *assignments, body])
    size = len(text.encode())
    if size > MAX_BYTES:
        raise UserDataTooLong(
            f"the user data of group '{variables.group}' has {size} bytes, EC2 takes {MAX_BYTES}: "
            f"shorten its names, or {SCRIPT.name}"
        )
    return text


def _quoted(value: str) -> str:
    """In single quotes, also where bash needs none: ``STACK=test`` reads like a forgotten ``$(test)``."""
    return "'" + value.replace("'", "'\\''") + "'"
