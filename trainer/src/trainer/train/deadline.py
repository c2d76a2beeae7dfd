"""Work that is waited for only so long."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, work: Callable[[], T]) -> T:
    """The work's result or exception; TimeoutError once it takes longer than ``seconds``.

    It then goes on in its thread, which ends with the process at the latest: it must be work that may be cut off at
    any place, and that does no harm when it comes to its end late.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True, name="within-a-deadline")
    thread.start()
    thread.join(seconds)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"not done within {seconds:g} s")
    return results[0]
