"""`make check`: every linter over the whole tree; all of them run, then the failed ones are named."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

from localcloud.toolchain import ROOT, cache, paths

LIMIT_SECONDS = 600


def checks() -> Iterator[tuple[str, list[str] | None]]:
    """Name and command of each check; None where the tool is not on this machine."""
    tools = paths()
    bin_folder = tools.python_workbench.parent
    ruff = str(bin_folder / "ruff")
    yield "format (ruff)", [ruff, "format", "--check", "."]
    yield "lint (ruff)", [ruff, "check", "."]
    yield "types (pyright)", [str(bin_folder / "pyright"), "--pythonpath", str(tools.python_workbench)]
    shell = [str(bin_folder / "shellcheck"), "--shell=bash", ".ci/run", *_files("*.sh")]
    yield "shell (shellcheck)", shell
    actionlint = [str(tools.actionlint), "-no-color", "-shellcheck", str(bin_folder / "shellcheck")]
    yield "workflows (actionlint)", [*actionlint, *_files(".github/workflows/*.yml")]
    rules = _files("components/monitoring/rules/*.yaml")
    yield (
        "alert rules (promtool)",
        [str(tools.promtool), "check", "rules", *rules] if tools.promtool else None,
    )


def _files(pattern: str) -> list[str]:
    """Files of the tree that git knows or would take, by a pattern as git understands it."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z", "--", pattern],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=LIMIT_SECONDS,
    ).stdout
    return sorted(name for name in listed.split("\0") if name and (ROOT / name).exists())


def main() -> int:
    env = {**os.environ, "PYRIGHT_PYTHON_CACHE_DIR": str(cache() / "pyright")}
    required = os.environ.get("SETUP_SYSTEM") == "1" or os.environ.get("CI") == "true"
    failed: list[str] = []
    for name, command in checks():
        start = time.monotonic()
        if command is None:
            print(f"check: {name}: the tool is not installed (SETUP_SYSTEM=1 make setup)", flush=True)
            failed += [name] if required else []
            continue
        code = subprocess.run(command, cwd=ROOT, env=env, timeout=LIMIT_SECONDS).returncode
        print(
            f"check: {name}: {'ok' if code == 0 else 'FAILED'} ({time.monotonic() - start:.1f} s)", flush=True
        )
        failed += [name] if code != 0 else []
    if failed:
        print(f"check: FAILED: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
