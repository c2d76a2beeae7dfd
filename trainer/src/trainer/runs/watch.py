"""A run on the terminal: headline, members, progress while waiting, one line an event."""

from __future__ import annotations

import json
import sys
import time

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from ..agent.board import Board
from ..contracts.run import RunConfig, RunResult
from ..exit_codes import Exit
from ..report.reader import EventReader
from .status import RunStatus, duration, read_status

LINE_SECONDS = 15.0  # where there is no terminal: how often a line is printed


def headline(status: RunStatus) -> str:
    """One line: state, world now and whole, generation, step, loss, last checkpoint, time left."""
    progress = status.progress
    steps = f"/{progress.total_steps}" if progress.total_steps else ""
    parts = [f"run {status.run}: {status.state}"]
    if status.world:
        parts.append(f"{status.world} of {status.nodes} nodes")
    parts += [
        f"generation {status.generation}",
        f"step {progress.step}{steps}",
    ]
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.eval_accuracy is not None:
        parts.append(f"held-out accuracy {progress.eval_accuracy:.1%}")
    if progress.checkpoint_step is not None:
        parts.append(f"checkpoint at {progress.checkpoint_step}")
    if status.state == "waiting":
        ready = sum(member.state == "ready" for member in status.members)
        parts.append(f"{ready} of {status.nodes} members ready")
    if status.cost is not None and status.cost.prices_as_of is not None:
        parts.append(f"USD {status.cost.usd_low:.2f} to {status.cost.usd_high:.2f}")
    if status.eta_seconds is not None:
        parts.append(f"{duration(status.eta_seconds)} left")
    return ", ".join(parts)


def members_table(status: RunStatus) -> Table:
    table = Table("rank", "instance", "group", "state", "generation", "exit", "message", box=box.SIMPLE)
    for member in status.members:
        rank = "" if member.node_rank is None else str(member.node_rank)
        code = "" if member.exit_code is None else f"{member.exit_code} {_code_name(member.exit_code)}"
        row = (rank, member.instance_id, member.group, member.state, str(member.generation), code)
        table.add_row(*row, escape(member.message or ""))
    return table


def watch(board: Board, config: RunConfig, limit_seconds: float, poll_seconds: float) -> RunResult | None:
    """Progress on standard error until the run has its result; None when the limit came first."""
    console = Console(stderr=True)
    events = EventReader(board.store, board.bucket, config.name)
    deadline = time.monotonic() + limit_seconds
    columns = (BarColumn(), TextColumn("{task.description}"))
    next_line = 0.0
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("waiting for members", total=None)
        while True:
            result = board.result(config.name)
            if result is not None or time.monotonic() > deadline:
                return result
            status = read_status(board, config, events)
            total = status.progress.total_steps
            progress.update(task, total=total, completed=status.progress.step, description=headline(status))
            if not console.is_terminal and time.monotonic() > next_line:
                print(headline(status), file=sys.stderr, flush=True)
                next_line = time.monotonic() + LINE_SECONDS
            time.sleep(poll_seconds)


def event_line(line: str) -> str:
    """An event as words; a line that is no event stays as it is."""
    try:
        event = json.loads(line)
        kind = event.pop("kind")
        event.pop("time", None)
    except (ValueError, KeyError, AttributeError):
        return line
    values = (
        f"{name} {value:.5g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in event.items()
    )
    return f"{kind}: " + ", ".join(values)


def log_line(line: str) -> str:
    """A worker's log line as words, a trace below it; a line that is not ours stays as it is."""
    try:
        fields = json.loads(line)
        head = [fields.pop("time"), fields.pop("level"), f"rank {fields.pop('rank')}"]
        event, trace = fields.pop("event"), fields.pop("exception", None)
    except (ValueError, KeyError, AttributeError, TypeError):
        return line
    step = fields.pop("step", None)
    head += [f"step {step}"] if step is not None else []
    for name in ("run", "generation"):  # told by the line's place
        fields.pop(name, None)
    words = [f"{' '.join(head)}: {event}", *(f"{name}={value}" for name, value in fields.items())]
    return "\n".join([", ".join(words), *([trace] if trace else [])])


def _code_name(code: int) -> str:
    try:
        return Exit(code).name
    except ValueError:
        return ""
