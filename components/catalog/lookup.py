"""What the catalog files have in common: reading rows, and naming the nearest match of a wrong name."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import date
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class Facts(BaseModel):
    """Part of a row of a data file; unknown keys and wrong types are faults of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel, populate_by_name=True)


class Row(Facts):
    """A row of a data file: when its facts were read, and where."""

    as_of: date
    source: str


class UnknownName(KeyError):
    """A name that the catalog does not have; ``nearest`` is the closest known one, or None."""

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        self.name = name
        self.nearest = nearest(name, known)
        hint = f"; nearest match: {self.nearest}" if self.nearest else ""
        super().__init__(f"unknown {kind} '{name}'{hint}")

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would put the text in quotes


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that looks most like ``name``, or None when none does."""
    # Case is folded for the comparison only: "G6.XLarge" finds "g6.xlarge".
    by_folded = {candidate.lower(): candidate for candidate in known}
    found = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None


def read_rows(file_name: str) -> list[dict[str, Any]]:
    """The rows of a data file of this folder."""
    return json.loads((Path(__file__).parent / file_name).read_text("utf-8"))
