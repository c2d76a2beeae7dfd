"""Small pieces of HTML. Everything that comes from a run goes through `text` and is never markup."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from .chart import Chart, is_cut, svg


@dataclass(frozen=True)
class Cell:
    text: str
    kind: str = ""  # n: a number, t: not broken, code; good, warn, bad


def text(value: object) -> str:
    return escape(str(value), quote=True)


def table(
    heads: Sequence[str], rows: Iterable[Sequence[Cell | str]], numbers: frozenset[int] = frozenset()
) -> str:
    """``numbers``: columns of numbers, which are aligned to the right."""
    head = "".join(
        f'<th class="n">{text(name)}</th>' if place in numbers else f"<th>{text(name)}</th>"
        for place, name in enumerate(heads)
    )
    body = "".join(
        f"<tr>{''.join(_cell(cell, place in numbers) for place, cell in enumerate(row))}</tr>" for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: Cell | str, number: bool) -> str:
    cell = cell if isinstance(cell, Cell) else Cell(cell)
    kind = " ".join(filter(None, (cell.kind, "n" if number else "")))
    return f'<td class="{kind}">{text(cell.text)}</td>' if kind else f"<td>{text(cell.text)}</td>"


def tiles(pairs: Iterable[tuple[str, str, str]]) -> str:
    """(name, value, more); an empty value is left out."""
    boxes = [
        f"<div><dt>{text(name)}</dt><dd>{text(value)}{f'<small>{text(more)}</small>' if more else ''}</dd></div>"
        for name, value, more in pairs
        if value
    ]
    return f'<dl class="tiles">{"".join(boxes)}</dl>'


def figure(chart: Chart) -> str:
    names = [
        f'<span class="key" style="--c:var(--s{number})">{text(line.name)}</span>'
        for number, line in enumerate(chart.lines)
        if len(chart.lines) > 1
    ]
    if is_cut(chart):
        names.append("<span>outliers are cut off</span>")
    return f"<figure><figcaption>{text(chart.title)}{''.join(names)}</figcaption>{svg(chart)}</figure>"


def when(at: float) -> str:
    """UTC, to the second."""
    return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%Y-%m-%d %H:%M:%S")


def span(seconds: float) -> str:
    """``850 ms``, ``12.3 s``, ``14 min 5 s``, ``3 h 12 min``, ``2 d 4 h``."""
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for unit, name, below, below_name in (
        (86400, "d", 3600, "h"),
        (3600, "h", 60, "min"),
        (60, "min", 1, "s"),
    ):
        if whole >= unit:
            rest = whole % unit // below
            return f"{whole // unit} {name}" + (f" {rest} {below_name}" if rest else "")
    return f"{whole} s"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count < 1024 or unit == "TiB":
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    raise AssertionError("unreachable")
