"""`make faults`: every fault on a local cloud of machines, judged; `docs/faults.md` with the figures.

python -m localcloud.faults [--only NAME ...] [--fast] [--seed N] [--time-factor F] [--list] [--json]

Without `--only` and `--fast` the report is written. It takes about half an hour; each fault says how it went as it
ends. Exit code 1 if one failed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import platform
import random
import sys
import time
from datetime import date
from pathlib import Path

from rich.console import Console

from ..daemons import DaemonFailed
from ..stack import LOCAL, LocalStack, tools
from ..steps import EXIT_FAILED, EXIT_INTERRUPTED, StepFailed
from ..toolchain import ROOT, Failed
from .catalog import FAULTS, Fault, by_name
from .lab import Lab, lab_stack
from .leavings import kill_make_up
from .report import FaultRecord, Header, print_table, render

REPORT = ROOT / "docs" / "faults.md"
TIME_FACTOR = 0.25
KILLS = 10


def in_order(faults: list[Fault], seed: int) -> list[Fault]:
    """A seeded order; those that want as many nodes one after the other, so that nodes are not made for nothing."""
    chance = random.Random(seed)
    shuffled = sorted(faults, key=lambda fault: fault.name)
    chance.shuffle(shuffled)
    return sorted(shuffled, key=lambda fault: fault.nodes)


def run(
    stack: LocalStack, faults: list[Fault], kills: int, seed: int, time_factor: float, console: Console
) -> list[FaultRecord]:
    records: list[FaultRecord] = []
    driver = "machine"
    with Lab(lab_stack(stack, driver, time_factor), console, seed, time_factor) as lab:
        records.append(lab.run_reference(2))
        for fault in in_order(faults, seed):
            records.append(lab.run(fault))
            stack.file("faults.jsonl").write_text("".join(record.to_json() for record in records))
    if kills:
        records += kill_make_up(stack, kills, seed, console)
    return records


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these faults, and no report")
    parser.add_argument("--fast", action="store_true", help="the subset that `make test` runs, and no report")
    parser.add_argument("--list", action="store_true", help="name all faults and what they do")
    parser.add_argument("--seed", type=int, default=1, help="of the order and of the moments of kills")
    parser.add_argument("--time-factor", type=float, default=TIME_FACTOR, help="of waits that AWS dictates")
    parser.add_argument("--kills", type=int, default=KILLS, help="of `make up`, at random moments")
    parser.add_argument("--local", type=Path, default=LOCAL, help="the state folder")
    parser.add_argument("--json", action="store_true", help="print the records, one a line")
    asked = parser.parse_args(argv)
    console = Console(stderr=asked.json)
    if asked.list:
        for fault in FAULTS:
            print(f"{fault.name:24}  {fault.group:20}  {fault.description}")
        return 0
    chosen = list(FAULTS)
    if asked.fast:
        chosen = [fault for fault in FAULTS if fault.fast]
    elif asked.only:
        chosen = []
        for name in asked.only:
            fault = by_name(name)
            if fault is None:
                near = difflib.get_close_matches(name, [fault.name for fault in FAULTS], 1)
                hint = f"; did you mean {near[0]}?" if near else "; `--list` shows them"
                print(f"make faults: there is no fault {name}{hint}", file=sys.stderr)
                return 2
            chosen.append(fault)
    whole = not (asked.fast or asked.only)
    began = time.monotonic()
    try:
        stack = LocalStack(tools(), asked.local)
        with stack.alone():
            kills = asked.kills if whole else 0
            records = run(stack, chosen, kills, asked.seed, asked.time_factor, console)
    except KeyboardInterrupt:
        print("make faults: interrupted; nothing is left running", file=sys.stderr)
        return EXIT_INTERRUPTED
    except (StepFailed, Failed, DaemonFailed) as fault:
        print(f"make faults: {fault}", file=sys.stderr)
        return EXIT_FAILED
    print_table(records, console)
    if asked.json:
        print("".join(record.to_json() for record in records), end="")
    if whole:
        header = Header(
            date=date.today().isoformat(), machine=_machine(), driver="machine", seed=asked.seed,
            time_factor=asked.time_factor, wall_seconds=time.monotonic() - began,
        )  # fmt: skip
        REPORT.write_text(render(records, header))
        console.print(f"report: {REPORT}", highlight=False)
    failed = [record.name for record in records if not record.verdict.passed]
    if failed:
        print(f"make faults: {len(failed)} of {len(records)} failed: {', '.join(failed)}", file=sys.stderr)
    return EXIT_FAILED if failed else 0


def _machine() -> str:
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores, {gibibytes:.0f} GiB, Linux {platform.release().partition('-')[0]}"


if __name__ == "__main__":
    sys.exit(main())
