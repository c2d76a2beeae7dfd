"""What an XID asks for, by its code: dated data. A code that nobody knows yet is watched, never a crash."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Literal, get_args

TABLE = Path(__file__).with_name("xid_actions.json")

XidAction = Literal["restart", "reset", "reboot", "replace", "inspect", "watch", "unknown"]


def xid_action(code: int) -> XidAction:
    return _table().get(code, "unknown")


@functools.lru_cache(maxsize=1)
def _table() -> dict[int, XidAction]:
    table: dict[int, XidAction] = {}
    for action, codes in json.loads(TABLE.read_text())["actions"].items():
        assert action in get_args(XidAction)
        for text in codes:
            first, _, last = text.partition("-")
            for code in range(int(first), int(last or first) + 1):
                table[code] = action
    return table
