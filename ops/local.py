"""The local stack's nodes for the same commands: their consoles are files, and they have no Session Manager."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from localcloud.stack import LOCAL, STACK

from .refusal import Refused

LINES = 200


def is_local(stack: str) -> bool:
    return stack == STACK


def consoles(node: str | None, local: Path = LOCAL) -> list[Path]:
    """The console of every node, or of one. Raises Refused where there is none."""
    found = sorted((local / "nodes").glob("i-*/console.log"))
    if not found:
        raise Refused("no local stack runs, or it has no node yet; `make up` brings one up")
    chosen = [path for path in found if node in (None, path.parent.name)]
    if not chosen:
        there = ", ".join(path.parent.name for path in found)
        raise Refused(f"{node} is no node of the local stack; there are {there}")
    return chosen


def tail_argv(paths: list[Path], follow: bool) -> list[str]:
    return ["tail", "-v", "-n", str(LINES), *(["-F"] if follow else []), *map(str, paths)]


def show_logs(node: str | None, follow: bool) -> int:
    """Hands this process over to `tail`."""
    argv = tail_argv(consoles(node), follow)
    sys.stdout.flush()
    os.execvp(argv[0], argv)


def refuse_connect() -> None:
    raise Refused(
        "local nodes have no Session Manager: `make logs` shows their consoles, .local/nodes/<id>/journal is a machine "
        "node's journal (journalctl -D), and `make connect STACK=<x>` opens a shell on a node in an account"
    )
