"""Wheels for a node's interpreter and machine: which the lock file pins, how they are fetched, how a tar holds them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import parse_wheel_filename

from localcloud import packing

# The machine's own name, as wheels and markers spell it, by the catalog's name.
MACHINES = {"x86_64": "x86_64", "arm64": "aarch64"}


class ReleaseError(Exception):
    """One line: what could not be built and what to do."""


@dataclass(frozen=True)
class Target:
    """What a tar is for: an interpreter, and the architecture where it is not x86_64: cp312, cp312-arm64."""

    abi: str
    architecture: str

    @classmethod
    def of(cls, name: str) -> Target:
        """Raises ReleaseError for what is no target."""
        found = re.fullmatch(r"(cp3\d{1,2})(?:-(arm64))?", name)
        if found is None:
            raise ReleaseError(
                f"'{name}' is no interpreter of a node: write one such as cp312 or cp312-arm64"
            )
        return cls(found[1], found[2] or "x86_64")

    @property
    def machine(self) -> str:
        return MACHINES[self.architecture]

    @property
    def python(self) -> str:
        return f"{self.abi[2]}.{self.abi[3:]}"

    @property
    def platforms(self) -> list[str]:
        """What wheels for glibc 2.34 (Amazon Linux 2023) and newer may be tagged with."""
        tags = [f"manylinux_2_{minor}_{self.machine}" for minor in range(34, 16, -1)]
        return [*tags, f"manylinux2014_{self.machine}"]


def pins_for(lock_text: str, target_name: str) -> list[str]:
    """The lock's `name==version --hash=…` lines that apply to CPython of the target on Linux, without markers."""
    target = Target.of(target_name)
    version = target.python
    environment = {
        "python_version": version,
        "python_full_version": f"{version}.0",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "os_name": "posix",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": target.machine,
        "extra": "",
    }
    pins = []
    for line in lock_text.replace("\\\n", " ").splitlines():
        words = line.split("#")[0].split(" --hash=")
        if not words[0].strip():
            continue
        requirement = Requirement(words[0].strip())
        if len(words) == 1:
            raise ReleaseError(f"{requirement.name} has no hash in the lock file: run 'make lock'")
        if requirement.marker is None or requirement.marker.evaluate(environment):
            hashes = " ".join(f"--hash={word.strip()}" for word in words[1:])
            pins.append(f"{requirement.name}{requirement.specifier} {hashes}")
    return pins


def pip_download(target: Target, requirements: Path, folder: Path, limit_seconds: float) -> None:
    """Fetch wheels of pinned hashes for another interpreter and machine. Raises ReleaseError with pip's last line."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--require-hashes", "--only-binary", ":all:", "--implementation", "cp"]
    command += ["--python-version", target.abi[2:]]
    command += ["--abi", target.abi, "--abi", "abi3", "--abi", "none"]
    command += [option for platform in target.platforms for option in ("--platform", platform)]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        raise ReleaseError(f"pip took longer than {limit_seconds:.0f} s") from None
    if done.returncode != 0:
        raise ReleaseError((done.stderr.strip().splitlines() or ["no output"])[-1])


def requirements_of(wheels: dict[str, Path | bytes]) -> str:
    """What a node installs: each wheel by version and SHA-256."""
    lines = []
    for name, source in wheels.items():
        project, version, _, _ = parse_wheel_filename(Path(name).name)
        lines.append(f"{project}=={version} --hash=sha256:{packing.sha256_of(source)}\n")
    return "".join(sorted(lines))


def write_artifact(out: Path, stem: str, files: dict[str, Path | bytes]) -> dict[str, Any]:
    """A tar with the files, named by its bytes; returns its row of the manifest."""
    temporary = out / f"{stem}.tmp"
    packing.write_tar(temporary, files)
    sha256 = packing.sha256_of(temporary)
    name = f"{stem}-{sha256[:12]}.tar"
    os.replace(temporary, out / name)
    return {"file": name, "sha256": sha256, "bytes": (out / name).stat().st_size}
