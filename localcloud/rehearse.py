"""`make rehearse`: a spot notice to one of the local nodes while it trains, and what that cost.

The notice is real: the node's metadata service begins to show `spot/instance-action`. What follows is the node's and
the group's own doing; this command only watches and works out the report from the run's event lines.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from trainer.contracts.worker import events_file, generation_dir

from . import daemons
from .facts import GroupState
from .nodes import control
from .picture import draw
from .rehearsal import Rehearsal, RehearsalError, analyse, faults
from .stack import LOCAL, LocalStack, tools
from .steps import EXIT_FAILED, EXIT_INTERRUPTED, StepFailed, Steps, wait_until
from .story import life, losses, state_dir
from .toolchain import Failed
from .up import Up, bring_up

CONFIG = Path("trainer/examples/rehearsal_run.yaml")
STEPS_BEFORE_NOTICE = 60
LIMIT_SECONDS = 300.0
REPORT_FILE = "rehearsal.json"
PICTURE_FILE = "rehearsal.svg"


def spot_node(groups: list[GroupState]) -> str:
    """The node that gets the notice: the last spot node in service. Raises StepFailed where there is none."""
    spots = [i for group in groups for i in group.in_service if group.lifecycles.get(i) == "spot"]
    if not spots:
        raise StepFailed("no spot node is in service, so there is nothing to interrupt")
    return spots[-1]


def rehearse(stack: LocalStack, steps: Steps) -> Rehearsal:
    up = Up(stack, steps)
    declared = up.nodes()
    facts = stack.facts()
    run = f"rehearsal-{int(time.time())}"
    with steps.phase("run", f"start {run} on {declared} nodes"):
        config = str(stack.root / CONFIG)
        up.trainer("run", "start", "--run", run, "--config", config, "--nodes", str(declared))
        wait_until(
            f"step {STEPS_BEFORE_NOTICE} of {run}",
            120,
            lambda: _step(stack, run) >= STEPS_BEFORE_NOTICE,
            steps.say,
        )

    noticed = spot_node(stack.groups())
    with steps.phase("notice", f"spot notice to {noticed}"):
        status, text = control.give_order(stack.local, "spot-notice", noticed)
        notice_time = time.time()
        if status != "done":
            raise StepFailed(f"the node driver did not give the notice: {text}")
        wait_until(
            "all ranks to save and stop at one step", 60, lambda: len(facts.events(run, 1)) > 0, steps.say
        )
    with steps.phase("replacement", f"termination of {noticed}, boot and self-check of its replacement"):
        wait_until(
            "generation 2 to make its first step", LIMIT_SECONDS, lambda: _goes_on(stack, run), steps.say
        )
    with steps.phase("rest", "the rest of the run"):
        wait_until(f"the end of {run}", LIMIT_SECONDS, lambda: facts.run_result(run) is not None, steps.say)
        wait_until("its logs in the bucket", 30, lambda: len(facts.events(run, 2)) > 0, steps.say)

    result = facts.run_result(run)
    before, after = facts.events(run, 1), facts.events(run, 2)
    try:
        report = analyse(
            run,
            noticed,
            notice_time,
            before,
            after,
            declared - 1,
            result is not None and result.status == "finished",
        )
    except RehearsalError as fault:
        raise StepFailed(f"{run}: {fault} (logs: {stack.local / 'nodes'}/*/console.log)") from None
    stack.file(REPORT_FILE).write_text(report.to_json())
    draw_story(stack, report, before, after)
    return report


def draw_story(
    stack: LocalStack, report: Rehearsal, before: list[dict[str, Any]], after: list[dict[str, Any]]
) -> None:
    """The picture of the run: loss and nodes on one time axis, beginning with the first generation."""
    facts = stack.facts()
    checked = {
        path.parent.name: facts.selfcheck_seconds(group.name, path.parent.name)
        for group in stack.groups()
        for path in (stack.local / "nodes").glob("i-*/node.json")
    }
    start, end = before[0]["time"], after[-1]["time"]
    lanes, marks = life(stack.local / "nodes", report.run, start, end, checked)
    title = f"spot notice to one of {report.otherNodes + 1} nodes: {report.lostSteps} steps lost"
    stack.file(PICTURE_FILE).write_text(draw(title, losses([before, after], start), lanes, marks))


def _goes_on(stack: LocalStack, run: str) -> bool:
    """Generation 2 has made a step. Raises StepFailed where the run has ended without."""
    result = stack.facts().run_result(run)
    if result is not None and result.status != "finished":
        raise StepFailed(f"{run} {result.status}, exit code {result.exit_code}: {result.message}")
    return _step(stack, run, 2) > 0


def _step(stack: LocalStack, run: str, generation: int = 1) -> int:
    """The newest step any node's rank 0 has recorded locally; 0 before the first."""
    newest = 0
    for node in (stack.local / "nodes").glob("i-*"):
        path = events_file(generation_dir(state_dir(node), run, generation), 0)
        for line in (path.read_text(errors="replace") if path.exists() else "").splitlines():
            try:
                event = json.loads(line)
            except ValueError:  # a line that is being written
                continue
            if event.get("kind") == "step":
                newest = max(newest, int(event["step"]))
    return newest


def print_report(report: Rehearsal, console: Console) -> None:
    table = Table(title=f"rehearsal of {report.noticedNode}", title_justify="left", show_header=False)
    table.add_row("lost steps", str(report.lostSteps))
    table.add_row("stopped at / resumed at step", f"{report.stoppedAtStep} / {report.resumedAtStep}")
    table.add_row("notice to save", f"{report.noticeToSaveSeconds:.1f} s")
    table.add_row("notice to stop", f"{report.noticeToStopSeconds:.1f} s")
    table.add_row("stop to next step", f"{report.stopToNextStepSeconds:.1f} s")
    table.add_row(
        "idle time of the others", f"{report.idleSecondsOfOthers:.1f} s on {report.otherNodes} node(s)"
    )
    console.print(table)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make rehearse", description=__doc__)
    parser.add_argument("--local", type=Path, default=LOCAL, help="the stack's state folder")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    asked = parser.parse_args(argv)
    console = Console(stderr=asked.json)
    try:
        stack = LocalStack(tools(), asked.local)
        with stack.alone():
            bring_up(stack, console)
            steps = Steps(console)
            report = rehearse(stack, steps)
        print_report(report, console)
        steps.say(f"report: {stack.file(REPORT_FILE)}, picture: {stack.file(PICTURE_FILE)}")
        if asked.json:
            print(report.to_json(), end="")
        if found := faults(report):
            raise StepFailed("; ".join(found))
        return 0
    except KeyboardInterrupt:
        print("make rehearse: interrupted; the local stack runs on, `make down` ends it", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (StepFailed, Failed, daemons.DaemonFailed, subprocess.SubprocessError) as fault:
        print(f"make rehearse: {fault}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
