"""Command line of the toolchain; see the package's text."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import asdict

from . import NEEDS, ROOT, Failed, ensure, paths
from .lock import lock

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m localcloud.toolchain", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("ensure", help="make what is missing")
    make.add_argument("what", nargs="*", choices=sorted(NEEDS), default=["all"])
    make.add_argument("--json", action="store_true", help="print where the tools are")
    run = commands.add_parser("exec", help="make what an environment needs, then run its python")
    run.add_argument("environment", choices=["program", "workbench"])
    run.add_argument("arguments", nargs=argparse.REMAINDER)
    renew = commands.add_parser("lock", help="resolve the requirement files anew")
    renew.add_argument(
        "--upgrade", action="store_true", help="take the newest versions that the ranges allow"
    )
    asked = parser.parse_args()
    try:
        if asked.command == "ensure":
            found = ensure(*asked.what)
            if asked.json:
                print(json.dumps(asdict(found), default=str, indent=2))
        elif asked.command == "lock":
            ensure("program")  # brings uv
            for path in lock(paths().uv, asked.upgrade):
                print(path.relative_to(ROOT))
        else:
            _exec(asked.environment, asked.arguments)
    except Failed as fault:
        print(f"setup: {fault}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("setup: interrupted; the next call goes on where this one stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _exec(environment: str, arguments: list[str]) -> None:
    began = time.monotonic()
    found = ensure("all" if environment == "workbench" else "preview")
    python = found.python_workbench if environment == "workbench" else found.python_program
    dropped = {"VIRTUAL_ENV", "PYTHONHOME"}
    env = {name: value for name, value in os.environ.items() if name not in dropped}
    env["GPU_TRAINING_SETUP_SECONDS"] = f"{time.monotonic() - began:.2f}"  # for `make up`'s summary
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "trainer" / "src")])
    os.execve(python, [str(python), *arguments], env)


if __name__ == "__main__":
    sys.exit(main())
