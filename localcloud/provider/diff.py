"""What a change means: paths, and whether each can be updated in place or needs a new resource.

Old and new *inputs* are compared, so that values which only the cloud gives never count as a change. A null
and an absent property are equal. A value that is unknown counts as changed, as the official provider has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from .kinds import Kind
from .values import UNKNOWN, Tree, reveal

Change = Literal["add", "delete", "update"]
_PLAIN_KEY = re.compile(r"^[A-Za-z_$][A-Za-z0-9_$-]*$")


@dataclass(frozen=True)
class PropertyChange:
    path: str  # in the engine's own syntax: tags["a.b"], ingress[0].cidrBlocks
    change: Change
    replaces: bool

    @property
    def root(self) -> str:
        return re.split(r"[.\[]", self.path, maxsplit=1)[0]


@dataclass(frozen=True)
class Difference:
    changes: tuple[PropertyChange, ...]
    delete_before_replace: bool = False

    @property
    def replaces(self) -> bool:
        return any(change.replaces for change in self.changes)

    @property
    def roots(self) -> frozenset[str]:
        return frozenset(change.root for change in self.changes)


def walk(old: Tree, new: Tree, path: str = "") -> Iterator[tuple[str, Change]]:
    """The leaves at which two revealed trees differ, in a stable order."""
    if new is UNKNOWN or old is UNKNOWN:
        yield path, "add" if old is None else "update"
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            yield from walk(old.get(key), new.get(key), _join(path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            before = old[index] if index < len(old) else None
            after = new[index] if index < len(new) else None
            yield from walk(before, after, f"{path}[{index}]")
    elif old is None and new is None:
        return
    elif old is None:
        yield path, "add"
    elif new is None:
        yield path, "delete"
    elif old != new:
        yield path, "update"


def _join(path: str, key: str) -> str:
    if not _PLAIN_KEY.match(key):
        return f'{path}["{key}"]'
    return f"{path}.{key}" if path else key


def compare(kind: Kind, old: Mapping[str, Tree], new: Mapping[str, Tree]) -> Difference:
    """How the resource's inputs changed and what that takes."""
    before, after = reveal(dict(old)), reveal(dict(new))
    changes = tuple(
        PropertyChange(path, change, kind.forces_replacement(path, change))
        for path, change in walk(before, after)
    )
    fixed_name = kind.name is not None and after.get(kind.name) is not None
    same_name = kind.name is not None and before.get(kind.name) == after.get(kind.name)
    clash = any(change.replaces for change in changes) and fixed_name and same_name
    return Difference(changes, delete_before_replace=clash)
