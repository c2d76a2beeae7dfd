"""What the commands have in common: the stack, JSON, faults as one line, exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

from botocore.exceptions import BotoCoreError, ClientError

from .account import reason
from .refusal import EXIT_FINDINGS, EXIT_INTERRUPTED, EXIT_OK, Refused


def parser(name: str, about: str | None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog=f"make {name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--stack", required=True, help="the stack, of which Pulumi.<stack>.yaml is the file")
    return made


def guarded(name: str, body: Callable[[], int]) -> int:
    """Run a command: what a person can mend is one line on standard error and an exit code, never a trace."""
    try:
        return body()
    except Refused as fault:
        print(f"make {name}: {fault}", file=sys.stderr)
        return fault.code
    except (ClientError, BotoCoreError) as error:
        print(f"make {name}: AWS: {reason(error)}", file=sys.stderr)
        return EXIT_FINDINGS
    except BrokenPipeError:  # whoever read it has seen enough; what is left to flush goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except KeyboardInterrupt:
        print(f"make {name}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
