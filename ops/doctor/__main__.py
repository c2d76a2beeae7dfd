"""Ask the account what a stack needs of it, and print one table: quotas, offerings, images, reservations, a dry-run
launch of every template and type, roles, keys, secrets, names.

Exit code 0: nothing fails; 1: something does; 2: the command or the configuration; 3: no credentials.
"""

from __future__ import annotations

import datetime
import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from components.compute.plan import plan_group
from components.settings import Settings
from ops import command
from ops.account import Account, open_account
from ops.refusal import EXIT_FINDINGS, EXIT_OK, Refused
from ops.stack_file import settings_of

from . import capacity, images, launches, network, reserved, standing
from .finding import Check, Finding
from .runner import run
from .subnets import Subnets

COLOURS = {"ok": "green", "warn": "yellow", "fail": "bold red", "could not ask": "magenta"}


def checks_of(account: Account, settings: Settings, now: datetime.datetime) -> list[Check]:
    """All checks of a stack; nothing is asked yet. Raises Refused where the plans cannot be made."""
    try:
        plans = [plan_group(settings, group) for group in settings.gpu_groups]
    except ValueError as fault:
        raise Refused(str(fault)) from None
    return [
        *capacity.quota_checks(account, settings),
        capacity.zone_check(account, settings),
        capacity.offering_check(account, plans),
        *reserved.reservation_checks(account, settings.gpu_groups, now),
        *reserved.placement_checks(account, plans),
        *images.checks(account, settings.gpu_groups, now),
        *network.checks(account, settings, plans),
        *launches.checks(account, plans, Subnets(account, settings)),
        *standing.checks(account, settings, plans),
    ]


def diagnose(account: Account, settings: Settings, now: datetime.datetime) -> list[Finding]:
    """All findings, with progress on standard error where that is a terminal."""
    checks = checks_of(account, settings, now)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"asking account {account.id}", total=len(checks))
        found = run(checks, tell=lambda answered: progress.update(task, completed=answered))
    return [standing.identity(account, settings), *found]


def table_of(stack: str, account: Account, findings: Sequence[Finding]) -> Table:
    table = Table(title=f"stack {stack} in account {account.id}, {account.region}", title_justify="left")
    for header in ("check", "asked", "answer", "verdict", "what to do"):
        table.add_column(header, overflow="fold")
    for finding in findings:
        # As text: AWS's messages hold brackets, which are no markup.
        words = (finding.check, finding.asked, finding.answer, finding.verdict, finding.todo)
        style = COLOURS[finding.verdict]
        table.add_row(*(Text(word, style if word == finding.verdict else "") for word in words))
    return table


def summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.verdict for finding in findings)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in COLOURS if counts[verdict])


def main(argv: Sequence[str] | None = None) -> int:
    parser = command.parser("doctor", __doc__)
    parser.add_argument("--json", action="store_true", help="the findings as one JSON document")
    asked = parser.parse_args(argv)

    def body() -> int:
        settings = settings_of(asked.stack)
        account = open_account(settings)
        findings = diagnose(account, settings, datetime.datetime.now(datetime.timezone.utc))
        failed = any(finding.verdict == "fail" for finding in findings)
        if asked.json:
            head = {"stack": asked.stack, "accountId": account.id, "region": account.region, "failed": failed}
            print(json.dumps({**head, "findings": [asdict(finding) for finding in findings]}, indent=2))
        else:
            width = None if sys.stdout.isatty() else 160
            console = Console(width=width, highlight=False)
            console.print(table_of(asked.stack, account, findings))
            console.print(f"doctor {asked.stack}: {summary(findings)}")
        return EXIT_FINDINGS if failed else EXIT_OK

    return command.guarded("doctor", body)


if __name__ == "__main__":
    sys.exit(main())
