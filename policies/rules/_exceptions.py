"""Exceptions to a rule: which resource, for what reason, until when. They come from the pack's configuration:

    {"no-world-open-ingress": {"exceptions": [
        {"resource": "jump-*", "reason": "TICKET-7: until the VPN is up", "expires": "2027-03-31"}]}}

There is no exception without a reason or without an end. Where a rule runs several validators, `validator` in an
exception limits it to the one of that id.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from fnmatch import fnmatchcase
from typing import Any

EXCEPTIONS_PROPERTIES: dict[str, dict[str, Any]] = {
    "exceptions": {
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": ["resource", "reason", "expires"],
            "properties": {
                "resource": {"type": "string", "minLength": 1},
                "validator": {"type": "string", "minLength": 1},
                "reason": {"type": "string", "minLength": 10},
                "expires": {"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"},
            },
        },
    }
}


class Exceptions:
    """The exceptions of one rule. `resource` is a resource's name, `*` stands for any characters."""

    def __init__(self, config: Mapping[str, Any], today: date | None = None) -> None:
        self._today = today or datetime.now(timezone.utc).date()
        self._entries = list(config.get("exceptions") or [])

    def _of(self, name: str, validator: str) -> list[Mapping[str, Any]]:
        return [
            entry
            for entry in self._entries
            if fnmatchcase(name, entry.get("resource") or "")
            and entry.get("validator", validator) == validator
        ]

    def covers(self, name: str, validator: str = "") -> bool:
        """True where a complete exception names the resource and has not expired (its last day counts)."""
        return any(self._fault(entry) is None for entry in self._of(name, validator))

    def note(self, name: str, validator: str = "") -> str:
        """Why the exceptions that name the resource do not cover it; empty where none names it."""
        entries = self._of(name, validator)
        return "".join(f"\nAn exception does not hold: {self._fault(entry)}" for entry in entries)

    def _fault(self, entry: Mapping[str, Any]) -> str | None:
        if not str(entry.get("reason") or "").strip():
            return "it gives no reason"
        try:
            expires = date.fromisoformat(str(entry.get("expires")))
        except ValueError:
            return f"its expiry {entry.get('expires')!r} is no date like 2027-03-31"
        return f"it expired on {expires.isoformat()}" if expires < self._today else None
