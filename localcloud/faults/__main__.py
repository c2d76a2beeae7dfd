"""`make faults`: every fault on a local cloud of machines, judged; `docs/faults.md` with the figures.

python -m localcloud.faults [--only NAME ...] [--fast] [--resume] [--seed N] [--time-factor F] [--list] [--json]

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
from datetime import date
from pathlib import Path

from rich.console import Console

from ..daemons import DaemonFailed
from ..stack import LOCAL, LocalStack, tools
from ..steps import EXIT_FAILED, EXIT_INTERRUPTED, StepFailed
from ..toolchain import ROOT, Failed
from .catalog import FAULTS, Fault, by_name
from .lab import Lab, lab_stack
from .leavings import GROUP, kill_make_up
from .report import FaultRecord, Header, print_table, render

REPORT = ROOT / "docs" / "faults.md"
RECORDS = ROOT / "dist" / "faults.jsonl"  # of the last whole pass
TIME_FACTOR = 0.25
KILLS = 10


def in_order(faults: list[Fault], seed: int) -> list[Fault]:
    """A seeded order; those that want as many nodes one after the other, so that nodes are not made for nothing."""
    chance = random.Random(seed)
    shuffled = sorted(faults, key=lambda fault: fault.name)
    chance.shuffle(shuffled)
    return sorted(shuffled, key=lambda fault: fault.nodes)


def run(
    stack: LocalStack,
    faults: list[Fault],
    lab: tuple[int, float],
    kept: list[FaultRecord],
    whole: bool,
    console: Console,
) -> list[FaultRecord]:
    """The reference, then each fault; every record is kept on disk as it is made."""
    seed, time_factor = lab
    done = {record.name for record in kept}
    records = list(kept)
    with Lab(lab_stack(stack, "machine", time_factor), console, seed, time_factor) as laboratory:
        records.insert(0, laboratory.run_reference(2))
        for fault in in_order(faults, seed):
            if fault.name not in done:
                records.append(laboratory.run(fault))
                if whole:
                    keep(records)
    return records


def keep(records: list[FaultRecord]) -> None:
    RECORDS.parent.mkdir(exist_ok=True)
    RECORDS.write_text("".join(record.to_json() for record in records))


def passed_before() -> list[FaultRecord]:
    """Of the last pass, those faults that need not be done again."""
    lines = RECORDS.read_text().splitlines() if RECORDS.exists() else []
    records = [FaultRecord.from_json(line) for line in lines]
    return [record for record in records if record.verdict.passed and record.group != "reference"]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", action="extend", metavar="NAME", help="these faults, and no report"
    )
    parser.add_argument("--fast", action="store_true", help="the subset that `make test` runs, and no report")
    parser.add_argument("--resume", action="store_true", help="keep what passed in the last whole pass")
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
    try:
        stack = LocalStack(tools(), asked.local)
        with stack.alone():
            kept = passed_before() if asked.resume and whole else []
            records = run(stack, chosen, (asked.seed, asked.time_factor), kept, whole, console)
            if whole and asked.kills and not any(record.group == GROUP for record in kept):
                records += kill_make_up(stack, asked.kills, asked.seed, console)
                keep(records)
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
            time_factor=asked.time_factor, wall_seconds=sum(record.seconds for record in records),
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
