"""The ``trainer`` command. Each subcommand's module is imported in full only when it runs."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from collections.abc import Callable

from . import __version__
from .errors import Fault
from .exit_codes import Exit

# Modules with `add_parser(subparsers)`, which sets `run` (arguments -> exit code) as the parser's default. None of
# them imports torch or boto3 at its top, so that `trainer --help` answers at once.
COMMANDS = (
    "trainer.cli_run",
    "trainer.report.cli",
    "trainer.cli_dataset",
    "trainer.cli_train",
    "trainer.selfcheck.cli",
    "trainer.bench.cli",
    "trainer.agent.cli",
)

DESCRIPTION = """\
GPU training on a group of nodes that verify themselves, survive interruption and measure everything.

A researcher's commands:
  trainer dataset publish ...        put a dataset version into its bucket
  trainer run start --run NAME ...   start a training on the nodes of a group
  trainer run fetch --run NAME ...   get the best checkpoint, verified by its SHA-256
  trainer report NAME                the run as one HTML page that opens offline

On one machine, without any cloud:
  trainer train --dataset FOLDER     train, with the loop of the nodes' workers

A node runs the agent by itself:
  trainer selfcheck                  is this machine fit for training?
  trainer agent --document FILE      what every node of a group runs
"""

EPILOG = """\
Exit codes: 0 done, 2 bad configuration, 10-14 the machine, 20 the dataset, 21 storage, 30-32 the training,
40 a checkpoint, 70 a bug, 75/76 stopped on notice, 130 interrupted. Faults are told in one line on standard error.
"""


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="trainer",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"trainer {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for module in COMMANDS:
        importlib.import_module(module).add_parser(subparsers)
    return parser


def main(argv: list[str] | None = None) -> int:
    parser = build_parser()
    if not (sys.argv[1:] if argv is None else argv):
        parser.print_help()
        return int(Exit.CONFIGURATION)
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return int(run(arguments))
    except Fault as fault:
        return _tell(fault.exit_code, str(fault))
    except BrokenPipeError:
        return 0
    except KeyboardInterrupt:
        print("trainer: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:  # a path that cannot be read or written
            return _tell(Exit.CONFIGURATION, f"{error.filename}: {error.strerror}")
        traceback.print_exc()
        return _tell(Exit.BUG, f"unexpected: {type(error).__name__}: {error}")


def _tell(code: Exit, text: str) -> int:
    print(f"trainer: {code.name} ({code.value}): {' '.join(text.split())}", file=sys.stderr)
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
