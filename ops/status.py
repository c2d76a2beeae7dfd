"""How a stack in an account stands now: groups and nodes, what keeps them from launching, alarms, the current run, and
what the nodes cost an hour.

Exit code 0: nothing is wrong; 1: an alarm is on, launches are suspended, or nodes are missing; 2: the command, the
configuration, or no such stack; 3: no credentials.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from components.names import stack_names
from components.settings import Settings

from . import command
from .account import Account, open_account, reason
from .fleet import Group, hourly_cost, read_groups
from .refusal import EXIT_FINDINGS, EXIT_OK
from .stack_file import settings_of


@dataclass(frozen=True)
class Run:
    """The run that groups are pointed to. `status` is what `trainer run status` tells; `line` is its headline."""

    name: str
    groups: tuple[str, ...]
    line: str
    status: Mapping[str, Any]


@dataclass(frozen=True)
class Snapshot:
    stack: str
    account_id: str
    region: str
    groups: tuple[Group, ...]
    alarms: tuple[str, ...]  # in state ALARM, each with its reason
    runs: tuple[Run, ...]
    notes: tuple[str, ...]  # what could not be asked

    @property
    def wrong(self) -> list[str]:
        found = [f"alarm {alarm}" for alarm in self.alarms]
        for group in self.groups:
            if "Launch" in group.suspended:
                found.append(
                    f"{group.name} launches no nodes; when the cause is mended: aws autoscaling resume-processes "
                    f"--region {self.region} --auto-scaling-group-name {group.auto_scaling_group} "
                    "--scaling-processes Launch"
                )
            if group.in_service < group.desired:
                found.append(f"{group.name} has {group.in_service} of {group.desired} nodes in service")
        return found

    @property
    def cost_line(self) -> str:
        nodes = [node for group in self.groups for node in group.nodes]
        low, high, unknown = hourly_cost(nodes, self.region)
        amount = f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f} to {high:.2f}"
        left_out = f", without {', '.join(unknown)}, whose price is not known" if unknown else ""
        return f"{len(nodes)} nodes cost {amount} USD an hour by list price{left_out}"


def take(account: Account, settings: Settings) -> Snapshot:
    """Raises Refused where there is no such stack. Alarms and runs that cannot be read become notes."""
    groups = read_groups(account, settings)
    notes: list[str] = []
    alarms: list[str] = []
    runs: list[Run] = []
    try:
        alarms = _alarms(account, stack_names(settings).base_name)
    except Exception as error:  # the rest is still worth seeing
        notes.append(f"alarms could not be read: {reason(error)}")
    try:
        runs = _runs(settings)
    except Exception as error:
        notes.append(f"runs could not be read: {reason(error)}")
    return Snapshot(
        settings.stack, account.id, account.region, tuple(groups), tuple(alarms), tuple(runs), tuple(notes)
    )


def _alarms(account: Account, base_name: str) -> list[str]:
    pages = (
        account.client("cloudwatch")
        .get_paginator("describe_alarms")
        .paginate(StateValue="ALARM", AlarmNamePrefix=f"{base_name}-")
    )
    alarms = [alarm for page in pages for alarm in page.get("MetricAlarms", [])]
    return [f"{a['AlarmName']}: {' '.join(str(a.get('StateReason', '')).split())}" for a in alarms]


def _runs(settings: Settings) -> list[Run]:
    # The trainer's own reading of a run's documents.
    from trainer.agent.board import Board
    from trainer.runs.status import read_status
    from trainer.runs.watch import headline

    board = Board.connect(settings.region, stack_names(settings).artifacts_bucket)
    by_run: dict[str, list[str]] = {}
    for group in settings.gpu_groups:
        if (pointer := board.pointer(group.name)) is not None:
            by_run.setdefault(pointer.run, []).append(group.name)
    found: list[Run] = []
    for run, groups in by_run.items():
        if (config := board.config(run)) is not None:
            status = read_status(board, config)
            found.append(Run(run, tuple(groups), headline(status), status.to_dict()))
    return found


def show(snapshot: Snapshot, console: Console) -> None:
    title = f"stack {snapshot.stack} in account {snapshot.account_id}, {snapshot.region}"
    table = Table(title=title, title_justify="left")
    for header in ("group", "desired", "in service", "pending", "min-max", "nodes", "suspended"):
        table.add_column(header, overflow="fold")
    for group in snapshot.groups:
        words = (
            group.name,
            str(group.desired),
            str(group.in_service),
            str(group.pending),
            f"{group.min_nodes}-{group.max_nodes}",
            group.places or "-",
            ", ".join(group.suspended) or "-",
        )
        short = "yellow" if group.in_service < group.desired else ""
        table.add_row(*(Text(word, short) for word in words))
    console.print(table)
    for group in snapshot.groups:
        for node in group.nodes:
            _line(
                console, f"{node.instance_id}  {group.name}  {node.instance_type}  {node.zone}  {node.state}"
            )
        for trouble in group.troubles:
            _line(console, f"{group.name}: {trouble}", "yellow")
    for run in snapshot.runs:
        _line(console, run.line)
    if not snapshot.runs and not any(note.startswith("runs") for note in snapshot.notes):
        _line(console, "no run was started on this stack yet")
    for line in snapshot.wrong:
        _line(console, line, "bold red")
    for note in snapshot.notes:
        _line(console, note, "magenta")
    _line(console, snapshot.cost_line)


def _line(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style), soft_wrap=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser("status", __doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    asked = parser.parse_args(argv)

    def body() -> int:
        settings = settings_of(asked.stack)
        snapshot = take(open_account(settings), settings)
        if asked.json:
            more = {"wrong": snapshot.wrong, "cost": snapshot.cost_line}
            print(json.dumps({**asdict(snapshot), **more}, indent=2, default=str))
        else:
            width = None if sys.stdout.isatty() else 140
            show(snapshot, Console(width=width, highlight=False))
        return EXIT_FINDINGS if snapshot.wrong else EXIT_OK

    return command.guarded("status", body)


if __name__ == "__main__":
    sys.exit(main())
