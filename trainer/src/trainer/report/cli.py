"""``trainer report RUN``: the run as one HTML page."""

from __future__ import annotations

import argparse
import datetime
import os
from contextlib import suppress
from pathlib import Path

from ..access import BUCKET_VARIABLE, add_bucket_argument, artifacts_bucket
from ..errors import ConfigurationError

DESCRIPTION = """\
Writes one HTML file that opens anywhere, also offline: loss, accuracy, throughput, data wait, generations and
interruptions, the nodes' self-checks, checkpoints, cost, configuration. It reads what is below runs/RUN/ in the stack's
artifacts bucket, or a folder on this machine, and may be made while the run goes on.

  trainer report first-try
  trainer report runs/shapes         # of trainer train
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "report",
        help="a run as one HTML page that opens offline",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("which", metavar="RUN", help="the run's name, or the folder of a run on this machine")
    parser.add_argument(
        "--to", type=Path, metavar="FILE", help="or a folder; default: report-RUN.html in this folder"
    )
    add_bucket_argument(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from .page import render
    from .record import from_bucket, from_folder

    # Not `arguments.run`: that one is this function, as every command has it.
    asked: str = arguments.which
    if Path(asked).is_dir():
        record = from_folder(Path(asked))
    else:
        if not arguments.artifacts_bucket:
            raise ConfigurationError(
                f"{asked} is no folder of a run on this machine, and for a run of a stack the bucket is missing: "
                f"give --artifacts-bucket or set {BUCKET_VARIABLE} (stack output artifactsBucket)"
            )
        from ..agent.board import Board
        from ..store import Store

        record = from_bucket(Board(Store(), artifacts_bucket(arguments)), asked)
    page = render(record, datetime.datetime.now(datetime.timezone.utc)).encode()
    target: Path = arguments.to or Path()
    if target.is_dir():
        target /= f"report-{record.name}.html"
    part = target.with_name(f"{target.name}.part")
    try:
        part.write_bytes(page)
        os.replace(part, target)
    except OSError as error:
        raise ConfigurationError(
            f"{target} cannot be written: {error.strerror}; give another place with --to"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()
    print(f"{target}: {len(page) / 1e6:.2f} MB, run {record.name}")
    return 0
