"""`make release TORCH=cp312`: torch and what it needs as a second tar, for machine images that have no torch.

It is GiB large and changes only with the lock file, so it is made on demand and carried from release to release as long
as its pins are the same.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from localcloud import releases_kept
from localcloud.toolchain import places
from localcloud.wheels import ReleaseError, Target, pins_for, pip_download, requirements_of, write_artifact

LOCK_FILE = places.REQUIREMENTS / "torch.txt"
NEEDED_GIB = 10.0  # the wheels and, while it is written, the tar of them
WHEEL_LIMIT_SECONDS = 1800.0


def add(out: Path, abi: str, cache: Path, lock: Path = LOCK_FILE) -> dict[str, Any]:
    """Give the newest release in `out` torch's tar for one interpreter; returns the manifest. Raises ReleaseError."""
    Target.of(abi)
    manifest_file = out / releases_kept.MANIFEST
    releases = releases_kept.read(manifest_file)
    if not releases:
        raise ReleaseError(f"{manifest_file} is missing: run 'make release'")
    newest, *others = releases
    tars = dict(newest.get("torchArtifacts", {}))
    pins = pins_for(lock.read_text(), abi)
    if tars.get(abi, {}).get("pinsSha256") != pins_sha256(pins):
        wheels = fetch(pins, abi, cache / "wheels" / f"torch-{abi}-{pins_sha256(pins)[:16]}")
        tars[abi] = write_tar(out, abi, wheels, pins)
    return releases_kept.write(manifest_file, {**newest, "torchArtifacts": tars}, others)


def carried(newest: dict[str, Any], releases: Sequence[dict[str, Any]], lock: Path) -> dict[str, Any]:
    """The release with the torch tars of others whose pins are still those of the lock file."""
    tars: dict[str, Any] = {}
    for row in [*reversed(releases), newest]:
        for abi, tar in row.get("torchArtifacts", {}).items():
            if lock.is_file() and tar.get("pinsSha256") == pins_sha256(pins_for(lock.read_text(), abi)):
                tars[abi] = tar
    return {**newest, "torchArtifacts": tars} if tars else newest


def fetch(pins: Sequence[str], abi: str, folder: Path) -> list[Path]:
    """The wheels of the pins, one after another, each told; a call that was broken off goes on where it stopped."""
    folder.mkdir(parents=True, exist_ok=True)
    free_gib = shutil.disk_usage(folder).free / 2**30
    if free_gib < NEEDED_GIB:
        raise ReleaseError(
            f"torch needs {NEEDED_GIB:.0f} GiB on the disk of {folder}, {free_gib:.1f} are free"
        )
    began = time.monotonic()
    for number, pin in enumerate(pins, start=1):
        done = folder / f"{hashlib.sha256(pin.encode()).hexdigest()[:16]}.done"
        name = pin.split(" ")[0]
        if not done.exists():
            before = {path.name for path in folder.glob("*.whl")}
            requirement = folder / "requirement.txt"
            requirement.write_text(pin + "\n")
            try:
                pip_download(Target.of(abi), requirement, folder, WHEEL_LIMIT_SECONDS)
            except ReleaseError as error:
                raise ReleaseError(f"{name} for {abi} could not be fetched: {error}") from None
            requirement.unlink()
            new = [path for path in folder.glob("*.whl") if path.name not in before]
            done.write_text("".join(path.name for path in new))
            mib = sum(path.stat().st_size for path in new) / 2**20
            seconds = time.monotonic() - began
            line = f"release: torch {abi}: {number} of {len(pins)}, {name}, {mib:.0f} MiB ({seconds:.0f} s)"
            print(line, file=sys.stderr, flush=True)
    return sorted(folder.glob("*.whl"))


def write_tar(out: Path, abi: str, wheels: Sequence[Path], pins: Sequence[str]) -> dict[str, Any]:
    """The tar as a node installs it; the wheels go, since the tar holds them."""
    files: dict[str, Path | bytes] = {f"wheels/{path.name}": path for path in wheels}
    files["requirements.txt"] = requirements_of(files).encode()
    print(f"release: torch {abi}: writing the tar of {len(wheels)} wheels", file=sys.stderr, flush=True)
    tar = write_artifact(out, f"torch-{abi}", files)
    for folder in {path.parent for path in wheels}:
        shutil.rmtree(folder, ignore_errors=True)
    return {**tar, "pinsSha256": pins_sha256(pins)}


def pins_sha256(pins: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(pins).encode()).hexdigest()
