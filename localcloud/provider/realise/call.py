"""What one realising call knows, and what a realiser is."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from boto3.session import Session
from botocore.config import Config
from botocore.exceptions import ClientError

from ..kinds import Place
from ..values import Tree
from .fit import Rename, parameters

Made = tuple[str, dict[str, Tree]]  # id, and the outputs that the emulation gave


def isolate() -> None:
    """Cut this process off the user's AWS profiles and proxies: it speaks to the emulation only."""
    for name in ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_SESSION_TOKEN"):
        os.environ.pop(name, None)
    os.environ.update(
        AWS_CONFIG_FILE=os.devnull, AWS_SHARED_CREDENTIALS_FILE=os.devnull, NO_PROXY="*", no_proxy="*"
    )


class Clients:
    """boto3 clients of the emulation, one a service."""

    def __init__(self, endpoint: str, region: str) -> None:
        self._session = Session(
            aws_access_key_id="local",
            aws_secret_access_key="local",  # noqa: S106 - the emulation takes any key
            region_name=region,
        )
        self._endpoint = endpoint
        self._made: dict[str, Any] = {}

    def __call__(self, service: str) -> Any:
        if service not in self._made:
            config = Config(
                retries={"total_max_attempts": 2},
                connect_timeout=5,
                read_timeout=60,
                s3={"addressing_style": "path"},
            )
            self._made[service] = self._session.client(service, endpoint_url=self._endpoint, config=config)
        return self._made[service]

    def account(self) -> str:
        return str(self("sts").get_caller_identity()["Account"])


@dataclass(frozen=True)
class Call:
    """One resource in one operation; all trees are revealed."""

    clients: Clients
    place: Place
    urn: str
    name: str  # the kind's unique name, generated where the program gave none
    inputs: Mapping[str, Tree]
    id: str = ""
    old_inputs: Mapping[str, Tree] = field(default_factory=dict)
    outputs: Mapping[str, Tree] = field(default_factory=dict)  # the old state

    def __getitem__(self, key: str) -> Any:
        """An input, or None."""
        return self.inputs.get(key)

    def state(self, key: str) -> Any:
        """An output of the old state, else an input: for deletions and updates."""
        return self.outputs.get(key, self.inputs.get(key))

    def changed(self, *keys: str) -> bool:
        return any(self.inputs.get(key) != self.old_inputs.get(key) for key in keys)

    @property
    def tags(self) -> dict[str, str]:
        return self._tags(self.inputs)

    @property
    def old_tags(self) -> dict[str, str]:
        return self._tags(self.old_inputs)

    def _tags(self, inputs: Mapping[str, Tree]) -> dict[str, str]:
        return {**self.place.default_tags, **(inputs.get("tags") or {})}

    def tag_list(self) -> list[dict[str, str]]:
        return [{"Key": key, "Value": value} for key, value in sorted(self.tags.items())]

    def tag_changes(self) -> tuple[list[dict[str, str]], list[str]]:
        """Tags to set, and the keys to take away."""
        old, new = self.old_tags, self.tags
        changed = [
            {"Key": key, "Value": value} for key, value in sorted(new.items()) if old.get(key) != value
        ]
        return changed, sorted(set(old) - set(new))

    def fit(self, service: str, operation: str, rename: Rename | None = None, *leave: str) -> dict[str, Any]:
        """The inputs as this call's parameters; `leave` names properties that other calls carry."""
        away = {*leave, "region", "tags"}
        tree = {key: value for key, value in self.inputs.items() if key not in away}
        return parameters(self.clients(service), operation, tree, rename)


@dataclass(frozen=True)
class Realiser:
    """How one kind is made. Without `update` a change is kept as declared."""

    create: Callable[[Call], Made]
    delete: Callable[[Call], object]
    read: Callable[[Call], object]  # raises a not-found error where the resource is gone
    update: Callable[[Call], Mapping[str, Tree] | None] | None = None


class Gone(Exception):
    """Read found nothing where the API reports that without an error."""


# Each service has its own word for it; EC2 says Unknown of placement groups.
_GONE = ("NotFound", "NoSuch", "DoesNotExist", "NonExist", "PlacementGroup.Unknown")


def is_gone(error: Exception) -> bool:
    """Whether AWS says that the resource does not exist (any more)."""
    if isinstance(error, Gone):
        return True
    if not isinstance(error, ClientError):
        return False
    code = error.response.get("Error", {}).get("Code", "")
    message = error.response.get("Error", {}).get("Message", "").lower()
    if code == "404" or any(part in code for part in _GONE):
        return True
    return code in ("ValidationError", "ValidationException") and "not found" in message


def first(items: list[Any]) -> Any:
    """The first one that is not merely a record of what was deleted; raises Gone for none."""
    there = [item for item in items if not (isinstance(item, dict) and item.get("State") == "deleted")]
    if not there:
        raise Gone
    return there[0]
