"""Rules set while the gateway runs, by a file in its state folder; what was injected is a file beside it."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from .rules import Asked, Rule, RuleBook

__all__ = ["Rule", "RuleFile", "clear", "injected", "set_rules"]

RULES_FILE = "rules.json"
INJECTED_FILE = "injected.jsonl"
_rules = TypeAdapter(tuple[Rule, ...])


def set_rules(state_dir: Path, rules: Sequence[Rule]) -> None:
    """Replace all rules of the gateway with this state folder; from its next request on they hold."""
    state_dir.mkdir(parents=True, exist_ok=True)
    new = state_dir / f".{RULES_FILE}.{os.getpid()}"
    new.write_bytes(_rules.dump_json(tuple(rules), indent=1))
    new.replace(state_dir / RULES_FILE)


def clear(state_dir: Path) -> None:
    """No rules any more."""
    (state_dir / RULES_FILE).unlink(missing_ok=True)


def injected(state_dir: Path) -> list[dict[str, Any]]:
    """The faults that were injected so far, oldest first: time (seconds since the epoch), kind, method, key, node.

    `key` is the request's path and query; it and `method` are empty where an outage met a new connection.
    """
    try:
        lines = (state_dir / INJECTED_FILE).read_text().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines if line.endswith("\n")]  # the last one may be half written


class RuleFile:
    """The gateway's side of both files. It starts with no rules: an earlier gateway's are not meant for it."""

    def __init__(self, state_dir: Path) -> None:
        state_dir.mkdir(parents=True, exist_ok=True)
        clear(state_dir)
        self._path = state_dir / RULES_FILE
        self._log = state_dir / INJECTED_FILE
        self._seen: tuple[int, int, int] | None = None
        self._book = RuleBook()
        self._lock = threading.Lock()

    def choose(self, asked: Asked) -> Rule | None:
        """The fault that this request meets; it is counted and logged."""
        rule = self._current().choose(asked)
        if rule is not None:
            self._note(rule, asked.node, asked.method, asked.target)
        return rule

    def refuses(self, node: str, method: str = "", target: str = "") -> bool:
        """Whether this node meets an outage; it is counted and logged."""
        rule = self._current().refuses(node)
        if rule is not None:
            self._note(rule, node, method, target)
        return rule is not None

    def _current(self) -> RuleBook:
        with self._lock:
            try:
                found = self._path.stat()
                seen = (found.st_mtime_ns, found.st_ino, found.st_size)
                if seen != self._seen:
                    self._seen = seen
                    self._book = RuleBook(_rules.validate_json(self._path.read_bytes()))
            except FileNotFoundError:
                self._seen, self._book = None, RuleBook()
            except ValidationError as fault:
                print(f"localcloud.gateway: {self._path} is refused: {fault}", file=sys.stderr)
            return self._book

    def _note(self, rule: Rule, node: str, method: str, target: str) -> None:
        line = {
            "time": round(time.time(), 3),
            "kind": rule.kind,
            "method": method,
            "key": target,
            "node": node,
        }
        with self._lock, self._log.open("a") as log:
            log.write(json.dumps(line) + "\n")
