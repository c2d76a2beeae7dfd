"""How far long work is: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Literal

LINE_SECONDS = 10.0

Show = Callable[[int, int], None]  # done, in all; from any thread


@contextmanager
def progress(title: str, unit: Literal["bytes", "files"], quiet: bool = False) -> Iterator[Show]:
    """On standard error; work that is over within LINE_SECONDS leaves no line."""
    if quiet:
        yield lambda _done, _total: None
    elif sys.stderr.isatty():
        with _bar(title, unit) as show:
            yield show
    else:
        yield _lines(title, unit)


@contextmanager
def _bar(title: str, unit: str) -> Iterator[Show]:
    from rich import progress as parts  # only here: a log's reader need not wait for its import
    from rich.console import Console

    counts = (
        (parts.DownloadColumn(), parts.TransferSpeedColumn())
        if unit == "bytes"
        else (parts.MofNCompleteColumn(),)
    )
    columns = (
        parts.TextColumn("{task.description}", markup=False), parts.BarColumn(), *counts, parts.TimeRemainingColumn()
    )  # fmt: skip
    with parts.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(title: str, unit: str) -> Show:
    lock, last = Lock(), time.monotonic()

    def show(done: int, total: int) -> None:
        nonlocal last
        with lock:
            now = time.monotonic()
            if now - last < LINE_SECONDS:
                return
            last = now
        share = 100 * done // max(total, 1)
        amount = (
            f"{done / 1e6:.0f} of {total / 1e6:.0f} MB" if unit == "bytes" else f"{done} of {total} files"
        )
        print(f"{title}: {share} %, {amount}", file=sys.stderr, flush=True)

    return show
