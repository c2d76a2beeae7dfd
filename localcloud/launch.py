"""How long a node took from its launch to its first step, phase by phase: lines and events in, seconds out. Pure."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from .nodes.console import parse

START_THE_AGENT = "start the agent"
# How the bootstrap's steps of installing begin; all others fetch: identity, node document, release.
INSTALL_STEPS = ("environment for release ", "install ", "torch of the image", "release ")
# The first of these after "preparing" says that the node is a member: it has its data and waits for others, or starts.
READY = ("waiting", "generation published", "another leader was first", "workers started")

Event = Mapping[str, Any]  # one line of events-rank<r>.jsonl, see trainer.contracts.worker.WorkerEvent


@dataclass(frozen=True)
class LaunchPhases:
    """Seconds, one phase after the other; None where the node did not come through a phase (never 0 for it)."""

    node: str
    boot: float | None = None  # launched -> user data's first line
    fetch: float | None = None  # identity, node document, schema, release, torch's release
    install: float | None = None  # environment and offline install, all of it
    selfcheck: float | None = None  # agent asked for -> self-check done, the launching hook is answered next
    wait: float | None = None  # for a run to be started: nobody's work, but part of the total
    data: float | None = None  # dataset and user package: preparing -> ready
    rendezvous: float | None = (
        None  # ready -> first step done: other members, torchrun, model, first collective
    )
    total: float | None = None  # launched -> first step done

    def seconds(self) -> dict[str, float | None]:
        """By phase, for a summary."""
        return {phase: getattr(self, phase) for phase in PHASES}


PHASES = tuple(field.name for field in fields(LaunchPhases) if field.name != "node")


def launch_phases(
    node: str,
    launched_at: float | None,
    console: Iterable[str],
    agent: Iterable[str],
    events: Iterable[Event],
) -> LaunchPhases:
    """The first launch of ``node`` and the first step that it did.

    ``launched_at``: seconds since the epoch, None where it is not known. ``console``: the node's console, whose lines
    begin with a time stamp. ``agent``: lines of the agent's log, JSON with ``time`` and ``event``, with or without
    something before it (the console of a node without systemd holds them too). ``events``: of one rank of the node, or
    rank 0's. All in the order of writing; lines of any other kind are passed over. All clocks are one machine's.
    """
    steps = [step for line in console if (step := parse(line)) is not None]
    # A node that boots again starts its agent and no more, so the first such line ends the launch's own.
    asked = next((at for at, text in steps if text.startswith(START_THE_AGENT)), None)
    # Fetching and installing take turns, so how long both took is known at their end only.
    done = [] if asked is None else [step for step in steps if step[0] <= asked]
    log = [entry for line in agent if (entry := _agent_line(line)) is not None]
    checked = _after(log, asked, "selfcheck done")
    preparing = _after(log, checked, "preparing")
    ready = _after(log, preparing, *READY)
    started = _after(log, ready, "workers started")
    stepped = next(
        (e["time"] for e in events if e["kind"] == "step" and started is not None and e["time"] >= started),
        None,
    )
    return LaunchPhases(
        node=node,
        boot=_between(launched_at, steps[0][0] if steps else None),
        fetch=_spent(done, install=False),
        install=_spent(done, install=True),
        selfcheck=_between(asked, checked),
        wait=_between(checked, preparing),
        data=_between(preparing, ready),
        rendezvous=_between(ready, stepped),
        total=_between(launched_at, stepped),
    )


def print_launches(launches: Sequence[LaunchPhases], console: Console) -> None:
    """A row a phase, a column a node: ids are long, and phases are many."""
    table = Table(title="seconds from launch to first step", title_justify="left")
    table.add_column("phase", no_wrap=True)
    for launch in launches:
        table.add_column(launch.node, justify="right", no_wrap=True)
    for phase in PHASES:
        values = [getattr(launch, phase) for launch in launches]
        table.add_row(phase, *("-" if value is None else f"{value:.1f}" for value in values))
    console.print(table)


def _spent(steps: Sequence[tuple[float, str]], install: bool) -> float | None:
    """Seconds in the steps of one kind, each up to the next line."""
    spent = [
        end - begin
        for (begin, text), (end, _) in itertools.pairwise(steps)
        if text.startswith(INSTALL_STEPS) == install
    ]
    return round(sum(spent), 3) if spent else None


def _agent_line(line: str) -> tuple[float, str] | None:
    try:
        entry = json.loads(line[line.index("{") :])
        at = datetime.fromisoformat(str(entry["time"]).replace("Z", "+00:00"))
        return at.timestamp(), str(entry["event"])
    except (ValueError, KeyError, TypeError):
        return None


def _after(log: Iterable[tuple[float, str]], since: float | None, *names: str) -> float | None:
    """The time of the first such line at or after ``since``; None where ``since`` is."""
    if since is None:
        return None
    return next((at for at, event in log if at >= since and event in names), None)


def _between(begin: float | None, end: float | None) -> float | None:
    return None if begin is None or end is None else round(end - begin, 3)
