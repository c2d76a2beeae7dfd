"""The laboratory's report: one record a fault, `docs/faults.md` and a table on the screen from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter
from rich.console import Console
from rich.table import Table

from .timing import Timing
from .verdict import Verdict

NOT_APPLICABLE = "–"  # or not known: never 0 for that
COLUMNS = ("fault", "what happened", "detected s", "recovered s", "lost steps", "idle node-s", "verdict")


@dataclass(frozen=True)
class FaultRecord:
    name: str  # as `make faults` knows it
    group: str
    description: str  # what is done, in a few words
    driver: str  # machine | process
    time_factor: float  # by which waits that AWS dictates are shortened; 1: as long as AWS
    verdict: Verdict
    timing: Timing
    seconds: float  # that the whole fault took, with run and healing

    @property
    def outcome(self) -> str:
        return self.verdict.outcome

    def to_json(self) -> str:
        return _RECORD.dump_json(self).decode() + "\n"

    @classmethod
    def from_json(cls, text: str | bytes) -> FaultRecord:
        """Raises pydantic.ValidationError."""
        return _RECORD.validate_json(text)


_RECORD = TypeAdapter(FaultRecord)


@dataclass(frozen=True)
class Header:
    """The facts of one pass of the laboratory."""

    date: str  # ISO
    machine: str  # cores, memory, kernel
    driver: str
    seed: int  # of the order of faults and of the moments of kills
    time_factor: float
    wall_seconds: float


@dataclass(frozen=True)
class NotRun:
    name: str
    why: str


def render(records: Sequence[FaultRecord], header: Header, not_run: Sequence[NotRun] = ()) -> str:
    """Markdown: how to run it, what the columns mean, a table per group in the order of the records."""
    passed = sum(record.verdict.passed for record in records)
    parts = [
        "# Faults\n",
        "`make faults` brings up a local cloud whose nodes really boot, starts a short training run for each fault, "
        "does one thing to it and judges what comes of it. This page is written by it; edit "
        "`localcloud/faults/` instead.\n",
        f"{header.date}, {header.machine}; driver `{header.driver}`, seed {header.seed}, time factor "
        f"{header.time_factor:g}, {_duration(header.wall_seconds)}: **{passed} of {len(records)} passed**.\n",
        _MEANING,
    ]
    for group in dict.fromkeys(record.group for record in records):
        parts += [f"## {group}\n", _table([record for record in records if record.group == group], header)]
    failed = [record for record in records if not record.verdict.passed]
    if failed:
        parts += ["## What failed\n"]
        parts += [_items([(record.name, fault) for record in failed for fault in record.verdict.faults])]
    if not_run:
        parts += ["## Not run\n", _items([(fault.name, fault.why) for fault in not_run])]
    return "\n".join(parts)


_MEANING = f"""\
A fault passes when the run ends with the loss of an undisturbed run and every sample used once per epoch, or stops with
the exit code that is meant for it and a line that says what to do. In both cases nothing is lost that a complete
checkpoint held, and there is one line of checkpoints.

| column | is |
|---|---|
| detected s | seconds from the fault to its first sign on any node: an agent's warning, a worker's stop, a node's end |
| recovered s | seconds from the fault to the first step of a new generation; in brackets, from the fault's end |
| lost steps | steps that were done and had to be done again |
| idle node-s | seconds without a step, summed over the nodes that are billed, until the run recovers or ends |
| {NOT_APPLICABLE} | does not apply: nobody noticed, or the run was not interrupted, or did not go on |
"""


def _table(records: Sequence[FaultRecord], header: Header) -> str:
    rows = [f"| {' | '.join(COLUMNS)} |", "|---|---|--:|--:|--:|--:|---|"]
    for record in records:
        name, *cells = _row(record)
        what = f"`{name}`: {record.description}"
        differs = [f"driver {record.driver}"] if record.driver != header.driver else []
        differs += [f"time factor {record.time_factor:g}"] if record.time_factor != header.time_factor else []
        if differs:
            what += f" ({', '.join(differs)})"
        rows.append(f"| {' | '.join(_cell(text) for text in (what, *cells))} |")
    return "\n".join(rows) + "\n"


def print_table(records: Sequence[FaultRecord], console: Console) -> None:
    """The same on the screen, and why a fault failed below it."""
    table = Table(title="faults", title_justify="left")
    for place, column in enumerate(COLUMNS):
        table.add_column(column, justify="right" if 2 <= place <= 5 else "left")
    for record in records:
        table.add_row(*_row(record), style=None if record.verdict.passed else "bold red")
    console.print(table)
    for record in records:
        for fault in record.verdict.faults:
            console.print(f"{record.name}: {fault}", style="red", markup=False, highlight=False)


def _row(record: FaultRecord) -> tuple[str, ...]:
    times = record.timing
    recovered = seconds(times.recovery_seconds)
    if times.after_healing_seconds is not None:
        recovered += f" ({seconds(times.after_healing_seconds)})"
    return (
        record.name,
        record.outcome,
        seconds(times.detection_seconds),
        recovered,
        NOT_APPLICABLE if times.lost_steps is None else str(times.lost_steps),
        seconds(times.billed_idle_seconds),
        "passed" if record.verdict.passed else "FAILED",
    )


def seconds(value: float | None) -> str:
    """Two digits below 1, one decimal below 100, then whole ones."""
    if value is None:
        return NOT_APPLICABLE
    if value == 0:
        return "0"
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _duration(value: float) -> str:
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _items(lines: Sequence[tuple[str, str]]) -> str:
    return "\n".join(f"- `{name}`: {' '.join(text.split())}" for name, text in lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
