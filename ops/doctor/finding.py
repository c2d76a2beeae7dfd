"""What a check says, and what a check is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["ok", "warn", "fail", "could not ask"]


@dataclass(frozen=True)
class Finding:
    """One row: what was asked of whom, what came back, what that means and what to do about it."""

    check: str
    asked: str
    answer: str
    verdict: Verdict
    todo: str = ""


@dataclass(frozen=True)
class Check:
    """`ask` makes the calls; what it raises becomes a row that says so. `right` is the IAM action that it takes."""

    name: str
    asked: str
    right: str
    ask: Callable[[], Sequence[Finding]]


def ok(check: str, asked: str, answer: str) -> Finding:
    return Finding(check, asked, answer, "ok")


def warn(check: str, asked: str, answer: str, todo: str) -> Finding:
    return Finding(check, asked, answer, "warn", todo)


def fail(check: str, asked: str, answer: str, todo: str) -> Finding:
    return Finding(check, asked, answer, "fail", todo)


def not_asked(check: str, asked: str, why: str, todo: str = "") -> Finding:
    return Finding(check, asked, why, "could not ask", todo)
