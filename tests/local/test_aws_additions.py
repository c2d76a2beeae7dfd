"""The table of additions to moto is the whole truth: nothing else is changed, and nothing stays changed."""

from __future__ import annotations

import sys
from typing import Any

from localcloud.aws import additions
from localcloud.aws.additions import ADDITIONS, applied


def everything_in_moto() -> dict[tuple[str, str], Any]:
    """(class or module, attribute) -> object, for all of moto that is loaded."""
    found: dict[tuple[str, str], Any] = {}
    for name, module in list(sys.modules.items()):
        if name != "moto" and not name.startswith("moto."):
            continue
        for attribute, value in list(vars(module).items()):
            found[name, attribute] = value
            if isinstance(value, type) and value.__module__ == name:
                owner = f"{name}.{value.__qualname__}"
                found.update({(owner, member): inner for member, inner in vars(value).items()})
    return found


def test_the_table_lists_exactly_what_is_changed_in_moto() -> None:
    before = everything_in_moto()
    with applied():
        within = everything_in_moto()
    changed = {key for key, value in within.items() if key not in before or before[key] is not value}
    listed = {(f"{a.owner.__module__}.{a.owner.__qualname__}", a.name) for a in ADDITIONS}
    assert changed == listed


def test_moto_is_itself_again_afterwards() -> None:
    before = everything_in_moto()
    with applied():
        pass
    after = everything_in_moto()
    assert {key for key in before if before[key] is not after.get(key)} == set()
    assert set(after) == set(before)


def test_each_addition_says_why_and_stands_once() -> None:
    assert all(len(addition.why) > 10 for addition in ADDITIONS)
    assert len({(a.owner, a.name) for a in ADDITIONS}) == len(ADDITIONS)
    assert additions.__doc__ is not None
