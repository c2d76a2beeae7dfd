"""Shorthand for table rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..kinds import Form, Kind


def row(
    type_: str,
    identifier: Form,
    outputs: Mapping[str, Form] | None = None,
    *,
    replace: str = "",
    filled: Mapping[str, Form] | None = None,
    name: str | None = None,
    **facts: Any,
) -> Kind:
    """A kind; `replace` lists property paths, separated by blanks; a name or a region always forces one."""
    forced = {*replace.split()} | ({name} if name else set())
    if facts.get("regional", True):
        forced.add("region")
    fills = {**({name: "{name}"} if name else {}), **(filled or {})}
    return Kind(type_, identifier, outputs or {}, fills, frozenset(forced), name=name, **facts)


def index(kinds: Iterable[Kind]) -> dict[str, Kind]:
    """Kinds by type; raises ValueError for a type that two rows describe."""
    table: dict[str, Kind] = {}
    for kind in kinds:
        if kind.type in table:
            raise ValueError(f"two rows for {kind.type}")
        table[kind.type] = kind
    return table


def arn(service: str, resource: str, *, region: str = "{region}", account: str = "{account}") -> str:
    return f"arn:{{partition}}:{service}:{region}:{account}:{resource}"
