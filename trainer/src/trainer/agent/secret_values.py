"""The training's secrets: fetched by name when a run is prepared, kept in memory, given to the workers' environment.

They are in no document, no command line and no file of the agent's. What workers print is theirs; where it leaves the
node (worker log, stacks, exit messages) the values are taken out of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..contracts.node_document import NodeDocument
from ..errors import ConfigurationError, StoreError

# Shorter values would take apart every log that happens to hold them, and guard nothing.
LEAST_REDACTED_CHARACTERS = 6
LEAST_CHARACTERS_IN_JSON = (
    12  # of a text inside a JSON value, where user names and kinds stand beside the key
)
TRIES = 4  # of a call, by the SDK
# AWS Secrets Manager API reference, GetSecretValue: errors that a repetition would meet again.
LASTING = {
    "ResourceNotFoundException": "does not exist in {region}; create it: aws secretsmanager create-secret "
    "--region {region} --name {name} --secret-string file://FILE",
    "InvalidRequestException": "cannot be read, it is marked for deletion; restore it: aws secretsmanager "
    "restore-secret --region {region} --secret-id {name}",
    "AccessDeniedException": "may not be read by this node's role; bring the stack up with the secret in its "
    "configuration, and let the role decrypt where the secret has a key of its own",
    "DecryptionFailure": "cannot be decrypted by this node's role; the secret's key must let it "
    "(docs/security.md, Secrets)",
    "InvalidParameterException": "has no current version; give it a value: aws secretsmanager put-secret-value "
    "--region {region} --secret-id {name} --secret-string file://FILE",
}


@dataclass(frozen=True)
class Secrets:
    """Values by environment variable; shown nowhere, also not in this object's own text."""

    values: Mapping[str, str] = field(default_factory=dict, repr=False)

    def redact(self, text: str) -> str:
        """The text with ``[NAME]`` in place of each value, of each line of one that has several, and of each text in
        one that is JSON (as Secrets Manager's console stores them); also where they are escaped, as in a line of JSON.
        """
        for part, name in self._parts():
            text = text.replace(part, f"[{name}]")
        return text

    def redact_bytes(self, data: bytes) -> bytes:
        for part, name in self._parts():
            data = data.replace(part.encode(), f"[{name}]".encode())
        return data

    def _parts(self) -> Iterator[tuple[str, str]]:
        """What to look for, the longest first, so that no value is hidden in half by one that it contains."""
        found = {
            form: name
            for name, value in self.values.items()
            for part in {value, *value.splitlines(), *_texts_in(value)}
            for form in {part, json.dumps(part)[1:-1], json.dumps(part, ensure_ascii=False)[1:-1]}
            if len(part) >= LEAST_REDACTED_CHARACTERS
        }
        yield from sorted(found.items(), key=lambda item: -len(item[0]))


def _texts_in(value: str) -> Iterator[str]:
    """The longer texts of a JSON object or list, and their lines; nothing of a value that is something else."""
    try:
        left = [json.loads(value)]
    except ValueError:
        return
    while left:
        one = left.pop()
        if isinstance(one, dict):
            left += one.values()
        elif isinstance(one, list):
            left += one
        elif isinstance(one, str):
            yield from (part for part in (one, *one.splitlines()) if len(part) >= LEAST_CHARACTERS_IN_JSON)


def fetch_secrets(document: NodeDocument) -> Secrets:
    """All secrets that the node document names. Raises ConfigurationError (2) where one is missing, unreadable or no
    text, StoreError (21) where Secrets Manager is out of reach.
    """
    if not document.secrets:
        return Secrets()
    retries: Any = {"mode": "standard", "total_max_attempts": TRIES}
    config = Config(retries=retries, connect_timeout=5, read_timeout=10)
    client = boto3.client("secretsmanager", region_name=document.region, config=config)
    return Secrets({env: _value(client, env, document) for env in sorted(document.secrets)})


def _value(client: Any, variable: str, document: NodeDocument) -> str:
    name = document.secrets[variable]
    which = f'secret "{name}" for {variable}'
    try:
        answer = client.get_secret_value(SecretId=name)
    except ClientError as error:
        code = error.response["Error"]["Code"]
        if code in LASTING:
            advice = LASTING[code].format(region=document.region, name=name)
            raise ConfigurationError(f"{which} {advice}") from error
        raise StoreError(f"{which}: Secrets Manager answered {code}") from error
    except BotoCoreError as error:
        raise StoreError(f"{which}: {' '.join(str(error).split())}") from error
    value = answer.get("SecretString")
    if not value or not value.strip() or "\0" in value:
        raise ConfigurationError(
            f"{which} is no text that an environment variable can hold; store it as text"
        )
    # `--secret-string file://token.txt` keeps the file's last line break, and no service takes a token with it.
    return str(value).rstrip("\r\n")
