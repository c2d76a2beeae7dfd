"""`make lock`: resolve all requirement files together, then write each with hashes.

One resolution over all of them first, so that a package has the same version in every file that names it: the
workbench installs three of them into one environment and borrows torch from a fourth.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from .places import REQUIREMENTS

# The lower end of the supported range: the resolver forks where newer interpreters get newer versions.
OLDEST_PYTHON = "3.10"
PIN = re.compile(r"^[A-Za-z0-9][^\\]*", re.MULTILINE)


def lock(uv: Path, upgrade: bool) -> list[Path]:
    """Write `requirements/<name>.txt` for every `<name>.in`.

    Versions that are locked already stay as long as the ranges allow; with `upgrade` all become the newest.
    """
    sources = sorted(REQUIREMENTS.glob("*.in"))
    targets = [source.with_suffix(".txt") for source in sources]
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        # What an existing output file says is what the resolver prefers.
        if not upgrade:
            kept = {pin for path in targets if path.exists() for pin in PIN.findall(path.read_text())}
            pins.write_text("".join(f"{pin.strip()}\n" for pin in sorted(kept)))
        _compile(uv, sources, pins, "--no-annotate")
        for source, target in zip(sources, targets, strict=True):
            shutil.copyfile(pins, target)
            _compile(uv, [source], target, "--generate-hashes")
    return targets


def _compile(uv: Path, sources: list[Path], output: Path, *options: str) -> None:
    command = [str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", OLDEST_PYTHON]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--custom-compile-command", "make lock"]
    names = [source.name for source in sources]
    subprocess.run(
        [*command, *options, "--output-file", str(output), *names], cwd=REQUIREMENTS, check=True, timeout=600
    )
