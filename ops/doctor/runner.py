"""Checks side by side, each with a limit; what one of them runs into hides nothing of the others."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence

from ops.account import DENIED, code_of, reason

from .finding import Check, Finding, not_asked

LIMIT_SECONDS = 10.0
AT_ONCE = 8


def run(
    checks: Sequence[Check],
    limit_seconds: float = LIMIT_SECONDS,
    at_once: int = AT_ONCE,
    tell: Callable[[int], None] = lambda answered: None,
) -> list[Finding]:
    """The findings in the order of the checks. A check that takes longer than the limit is told as not answered; its
    thread is left behind, ends with the process and delays nobody.
    """
    answers: queue.Queue[tuple[int, list[Finding]]] = queue.Queue()
    found: dict[int, list[Finding]] = {}
    waiting = list(enumerate(checks))
    began: dict[int, float] = {}
    while len(found) < len(checks):
        while waiting and len(began) < at_once:
            number, check = waiting.pop(0)
            began[number] = time.monotonic()
            threading.Thread(target=_ask, args=(number, check, answers), daemon=True).start()
        for number, since in list(began.items()):
            if time.monotonic() - since > limit_seconds:
                check = checks[number]
                found[number] = [not_asked(check.name, check.asked, f"no answer within {limit_seconds:g} s")]
                del began[number]
        try:
            number, findings = answers.get(timeout=0.05)
        except queue.Empty:
            continue
        if number in began:  # otherwise it was given up
            found[number] = findings
            del began[number]
        tell(len(found))
    return [finding for number in sorted(found) for finding in found[number]]


def _ask(number: int, check: Check, answers: queue.Queue[tuple[int, list[Finding]]]) -> None:
    try:
        findings = list(check.ask())
    except Exception as error:  # one row says what happened, the other rows are still wanted
        todo = f"ask for the right {check.right}" if code_of(error) in DENIED else ""
        findings = [not_asked(check.name, check.asked, reason(error), todo)]
    answers.put((number, findings))
