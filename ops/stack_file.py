"""The settings of a stack from its file, as the engine would read them, without an engine and without secrets."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from components.catalog import nearest
from components.settings import Settings, SettingsError, load
from components.settings.faults import NAMESPACE
from localcloud.toolchain import ROOT

from .refusal import Refused

ENCRYPTED = "encrypted"  # stands for a value that only Pulumi decrypts


class Yaml12(yaml.SafeLoader):
    """The engine's reading of plain scalars: `on` is text, and so is a day."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, rule) for tag, rule in rules if not tag.endswith((":bool", ":timestamp"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Yaml12.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def path_of(stack: str, project: Path = ROOT) -> Path:
    """The stack's file; Refused with the nearest name where there is none."""
    path = project / f"Pulumi.{stack}.yaml"
    if not path.is_file():
        if stack.startswith("examples/"):
            raise Refused(
                f"{stack} is an example for `make preview` and no stack of yours: copy {stack}.yaml to "
                "Pulumi.<name>.yaml, write your account into allowedAccountIds, and say STACK=<name>"
            )
        names = sorted(file.name.split(".")[1] for file in project.glob("Pulumi.*.yaml"))
        close = nearest(stack, names)
        hint = f" (nearest match: {close})" if close else ""
        raise Refused(f"there is no stack '{stack}'; STACK is one of {', '.join(names) or 'none'}{hint}")
    return path


def settings_of(stack: str, project: Path = ROOT) -> Settings:
    """Raises Refused with all faults of the file."""
    path = path_of(stack, project)
    try:
        document = yaml.load(path.read_text("utf-8"), Yaml12)  # noqa: S506  a SafeLoader of ours
    except yaml.YAMLError as error:
        raise Refused(f"{path.name} is no YAML: {' '.join(str(error).split())}") from None
    config = document.get("config") if isinstance(document, dict) else None
    if not isinstance(config, dict):
        raise Refused(f"{path.name} has no config")
    values: dict[str, Any] = {}
    for key, value in config.items():
        namespace, _, name = str(key).partition(":")
        if namespace == NAMESPACE:
            values[name] = _plain(value) if isinstance(value, dict | list) else str(value)
    try:
        return load(stack, values)
    except SettingsError as error:
        raise Refused(str(error)) from None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return ENCRYPTED if value.keys() == {"secure"} else {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
