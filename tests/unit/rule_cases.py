"""How a rule of the settings is tried out: a configuration that it refuses, the line it says, one it accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from components.settings import SettingsError, load
from tests.unit.stack_files import minimal

Changes = dict[tuple[str | int, ...], Any]  # config path -> value, over the minimal configuration

GROUP = ("gpuGroups", 0)
IMAGE = {"profile": "dlami-pytorch-ubuntu-24.04", "amiId": "ami-0123456789abcdef0"}


class Case(NamedTuple):
    """A rule, a configuration that it refuses, the line it says, and a configuration that it accepts."""

    rule: Callable[..., Any]
    refused: Changes
    line: str
    accepted: Changes
    stack: str = "dev"


def group(**changes: Any) -> Changes:
    return {(*GROUP, key): value for key, value in changes.items()}


def second_group(**changes: Any) -> Changes:
    one = minimal()["gpuGroups"][0]
    return {("gpuGroups",): [one, {**one, "name": "others", **changes}]}


def configured(changes: Changes) -> dict[str, Any]:
    namespace = minimal()
    for path, value in changes.items():
        holder: Any = namespace
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
    return namespace


def lines(stack: str, changes: Changes) -> list[str]:
    try:
        load(stack, configured(changes))
    except SettingsError as error:
        return [str(fault) for fault in error.faults]
    return []
