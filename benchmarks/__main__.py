"""`make bench`: speed against the limits it is held to; `--only` takes some parts, `--json` is for machines."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table

from localcloud import release
from localcloud.toolchain import ROOT, Failed, cache

from . import checkpoints, data, planning, previews, scrape, training
from .races import kept_environment, say

Row = tuple[str, str, str, str]  # what, median, lowest to highest, held to
PART_SECONDS = 1800  # none of them takes a third of it on two cores


def _planning(_rounds: int) -> tuple[Any, list[Row]]:
    taken, limit = planning.measure(), planning.LIMIT_SECONDS
    figures = {"groups": planning.GROUPS, "seconds": taken.seconds, "limitSeconds": limit}
    what = f"planning {planning.GROUPS} groups, pure"
    return figures, [(what, f"{taken.median:.2f} s", f"{taken.spread} s", f"under {limit:.0f} s")]


def _previews(rounds: int) -> tuple[Any, list[Row]]:
    release.build(release.SOURCE, release.LOCK_FILE, ROOT / "dist", release.wanted_abis(), cache())
    few, many = previews.measure(rounds)
    ratio = many.median / few.median
    figures = {
        "groups": [previews.FEW, previews.MANY],
        "seconds": [few.seconds, many.seconds],
        "ratio": ratio,
        "limitRatio": previews.LIMIT_RATIO,
    }
    return figures, [
        (f"preview, {previews.FEW} groups", f"{few.median:.1f} s", f"{few.spread} s", ""),
        (f"preview, {previews.MANY} groups", f"{many.median:.1f} s", f"{many.spread} s", ""),
        ("many to few", f"{ratio:.2f}", "", f"under {previews.LIMIT_RATIO}"),
    ]


def _data(rounds: int) -> tuple[Any, list[Row]]:
    figures = data.measure(data.Sizes(), rounds)
    return data.to_json(figures), data.rows(figures)


def _scrape(_rounds: int) -> tuple[Any, list[Row]]:
    figures = scrape.measure()
    return scrape.to_json(figures), scrape.rows(figures)


def _training(_rounds: int) -> tuple[Any, list[Row]]:
    figures = training.measure()
    return training.to_json(figures), training.rows(figures)


def _checkpoints(_rounds: int) -> tuple[Any, list[Row]]:
    figures = checkpoints.measure()
    return checkpoints.to_json(figures), checkpoints.rows(figures)


PARTS: dict[str, Callable[[int], tuple[Any, list[Row]]]] = {
    "planning": _planning,
    "preview": _previews,
    "scrape": _scrape,
    "training": _training,
    "checkpoints": _checkpoints,
    "data": _data,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--json", action="store_true", help="the figures as one JSON document")
    parser.add_argument("--rounds", type=int, default=3, help="of previews and of data (default 3)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="default: all")
    asked = parser.parse_args()
    figures: dict[str, Any] = {}
    table = Table("what", "median", "lowest to highest", "held to")
    for name in asked.only:
        say(f"{name} ...")
        try:
            with _limited(name), kept_environment():
                figures[name], rows = PARTS[name](asked.rounds)
        except (Failed, release.ReleaseError) as fault:
            print(f"bench: {name}: {fault}", file=sys.stderr)
            return 1
        for row in rows:
            table.add_row(*row)
    if asked.json:
        print(json.dumps(figures))
    else:
        Console().print(table)
    return 0


@contextmanager
def _limited(name: str) -> Iterator[None]:
    """A part that is stuck is ended, and what it had started with it."""

    def end(_signal: int, _frame: object) -> None:
        raise Failed(f"{name} is not done after {PART_SECONDS} s")

    signal.signal(signal.SIGALRM, end)
    signal.alarm(PART_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


if __name__ == "__main__":
    sys.exit(main())
