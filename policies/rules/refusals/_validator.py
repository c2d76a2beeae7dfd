"""What a validator of one resource is: a generator over its recorded inputs, with an id and a fix.

The provider lets these inputs pass, and AWS refuses them when it creates the resource, or takes them and does
not do what was meant. A validator reads through `leaves` and `read`, so that a value which is not known yet is
`UNKNOWN` and never an error; it judges what is known of the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .._judge import UNKNOWN


class Inputs(Mapping[str, Any]):
    """The recorded inputs of one resource, and its type."""

    def __init__(self, type_: str, props: Mapping[str, Any]) -> None:
        self.type, self._props = type_, props

    def __getitem__(self, key: str) -> Any:
        return self._props[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._props)

    def __len__(self) -> int:
        return len(self._props)


@dataclass(frozen=True)
class NotKnown:
    """A value that decides and is not known before the update."""

    path: str


# What is wrong, beginning with its path among the inputs, or the path of what is not known yet.
Found = str | NotKnown


class Named:
    """Its id is the function's name with dashes, its text the function's docstring."""

    find: Callable[..., Any]

    @property
    def id(self) -> str:
        return self.find.__name__.replace("_", "-")

    @property
    def text(self) -> str:
        return " ".join((self.find.__doc__ or "").split())


@dataclass(frozen=True)
class Validator(Named):
    """Over the inputs of one resource."""

    find: Callable[[Inputs], Iterator[Found]]
    types: frozenset[str]
    fix: str


def number(value: Any) -> float | None:
    """The value as a number; None where it is absent, not known yet, or no number (which the provider refuses)."""
    if value is None or value is UNKNOWN or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def known(value: Any) -> Any:
    """The value, or None where it is not known yet: for values whose absence is no fault."""
    return None if value is UNKNOWN else value
