"""``trainer selfcheck``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ..errors import ConfigurationError


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "selfcheck",
        help="is this machine fit for training?",
        description="Driver and GPUs against what the instance type promises, torch's kernels, the fabric manager, "
        "memory errors, XIDs, NVLink, shared memory, disks and clock; then matrix products and memory bandwidth, at "
        "level full also an all-reduce, judged by exactness, repeatability, peers and published floors. On a machine "
        "without a GPU it says what does not apply. Progress goes to standard error (with --json on a terminal alone). "
        "Exit code 0, or that of the worst finding.",
    )
    parser.add_argument("--level", choices=["quick", "full"], help="default: the document's, else quick")
    parser.add_argument("--document", type=Path, help="node document with what the machine promises")
    parser.add_argument("--instance-id", help="written into the report")
    parser.add_argument(
        "--folder", type=Path, default=Path(), help="whose disk is checked (default: this one)"
    )
    parser.add_argument("--json", action="store_true", help="print the report as one JSON object")
    parser.add_argument("--schema", action="store_true", help="print the JSON schema of the report and end")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from .report import SelfCheckReport

    if arguments.schema:
        print(json.dumps(SelfCheckReport.model_json_schema(by_alias=True), indent=2))
        return 0
    if not arguments.folder.is_dir():
        raise ConfigurationError(
            f"--folder {arguments.folder} is not a folder; name one on the disk to check"
        )
    from .run import run_selfcheck

    document = None
    if arguments.document is not None:
        from ..agent.document import read_document

        document = read_document(arguments.document)
    level = arguments.level or (document.self_check.level if document else "quick")
    quiet = arguments.json and not sys.stderr.isatty()

    def tell(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    report = run_selfcheck(document, level, arguments.folder, arguments.instance_id, tell=tell)
    if arguments.json:
        print(report.to_json(), end="")
    else:
        from .render import console, show

        show(report, console())
    return report.exit_code
