"""`make status`: what of the local stack runs now."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from . import daemons
from .stack import LOCAL, STACK, LocalStack, tools
from .steps import EXIT_FAILED, StepFailed

DAEMONS = ("aws", "nodes", "prometheus", "alertmanager")


def show(stack: LocalStack, console: Console) -> None:
    table = Table(title=f"stack {STACK}", title_justify="left")
    for header in ("what", "state", "where"):
        table.add_column(header)
    for name in DAEMONS:
        daemon = daemons.running(stack.local, name)
        table.add_row(name, "runs" if daemon else "-", daemon.log if daemon else "")
    for path in sorted((stack.local / "nodes").glob("i-*/node.json")):
        node = json.loads(path.read_text())
        words = f"{node['state']} ({node['lifecycle']})"
        if node["exitName"] is not None:
            words += f", ended with {node['exitName']}"
        table.add_row(node["instanceId"], words, str(path.with_name("console.log")))
    console.print(table)
    for group in stack.groups():
        suspended = ", launches suspended" if group.launches_suspended else ""
        console.print(
            f"group {group.name}: {len(group.in_service)} of {group.desired} nodes in service{suspended}"
        )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make status", description=__doc__)
    parser.add_argument("--stack", default=STACK)
    parser.add_argument("--local", type=Path, default=LOCAL, help="the stack's state folder")
    asked = parser.parse_args(argv)
    try:
        if asked.stack != STACK:
            raise StepFailed(f"is about the stack {STACK}; see `pulumi stack --stack {asked.stack}`")
        stack = LocalStack(tools(), asked.local)
        if stack.endpoint is None:
            print("make status: no local stack runs; `make up` brings one up")
            return 0
        show(stack, Console())
        return 0
    except StepFailed as fault:
        print(f"make status: {fault}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
