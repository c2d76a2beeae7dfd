"""`make down`: destroy the local stack by the engine, stop all that runs, remove `.local/`. Only the cache stays."""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from rich.console import Console

from .stack import LOCAL, STACK, LocalStack, tools
from .steps import EXIT_FAILED, EXIT_INTERRUPTED, StepFailed, Steps


def take_down(stack: LocalStack, console: Console) -> None:
    steps = Steps(console)
    endpoint = stack.endpoint
    if endpoint is not None and stack.file("outputs.json").exists():
        with steps.phase("stack", "pulumi destroy"):
            outcome = stack.engine(endpoint).destroy()
        if not outcome.ok:  # the emulated cloud goes anyway, and with it everything that was declared in it
            steps.say(f"stack: pulumi destroy failed; its log: {stack.local / 'pulumi' / 'pulumi.log'}")
            raise StepFailed(
                "pulumi destroy failed; the stack still runs (`make down FORCE=1` ends it regardless)"
            )
    with steps.phase("processes", "stop everything that runs"):
        leavings = stack.end_everything()
    for line in leavings:
        steps.say(f"processes: a leaving of an earlier command was ended: {line}")
    shutil.rmtree(stack.local)
    steps.say("nothing is left but the cache")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make down", description=__doc__)
    parser.add_argument("--stack", default=STACK)
    parser.add_argument("--local", type=Path, default=LOCAL, help="the stack's state folder")
    parser.add_argument(
        "--force", action="store_true", help="stop and remove everything without pulumi destroy"
    )
    asked = parser.parse_args(argv)
    if asked.stack != STACK:
        print(
            f"make down: is about the stack {STACK}; see `pulumi destroy --stack {asked.stack}`",
            file=sys.stderr,
        )
        return 2
    try:
        stack = LocalStack(tools(), asked.local)
        if not stack.local.exists():
            print("make down: there is no local stack")
            return 0
        with stack.alone():
            if asked.force:
                stack.file("outputs.json").unlink(missing_ok=True)
            take_down(stack, Console())
        return 0
    except KeyboardInterrupt:
        print("make down: interrupted; call it again to finish", file=sys.stderr)
        return EXIT_INTERRUPTED
    except StepFailed as fault:
        print(f"make down: {fault}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
