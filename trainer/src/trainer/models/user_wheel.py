"""A user's wheel on a node: fetched, verified, installed into the run's own folder, not the trainer's venv.

``userWheel`` names an object below ``releases/user/``. A name of the form ``<sha256>/<file>.whl``
(`hashed_name`, what ``trainer run start`` uploads to) is verified against that hash.
"""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

from ..contracts import keys
from ..errors import ConfigurationError
from ..store import Store, sha256_of

INSTALL_SECONDS = 300


def hashed_name(wheel: Path) -> str:
    """The object name below ``releases/user/`` that says what the bytes must be."""
    return f"{sha256_of(wheel)}/{wheel.name}"


def install_user_wheel(store: Store, bucket: str, name: str, run_dir: Path) -> Path:
    """The folder to import from, below ``run_dir``; installed once a node, whichever rank comes first.

    No dependencies are installed and no index is asked: what the wheel needs beyond torch and numpy it must
    carry itself. Raises ConfigurationError (no such object, wrong hash, not installable here), StoreError.
    """
    packages = run_dir / "packages"
    run_dir.mkdir(parents=True, exist_ok=True)
    with open(run_dir / "packages.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not packages.is_dir():
            _install(_fetch(store, bucket, name, run_dir), packages)
    return packages


def _fetch(store: Store, bucket: str, name: str, run_dir: Path) -> Path:
    key = keys.user_wheel(name)
    match = re.fullmatch(r"(?:([0-9a-f]{64})/)?([^/]+\.whl)", name)
    if match is None:
        raise ConfigurationError(f'userWheel "{name}": must be FILE.whl or SHA256/FILE.whl')
    fetched = store.get(bucket, key)
    if fetched is None:
        raise ConfigurationError(f'userWheel "{name}": there is no s3://{bucket}/{key}')
    target = run_dir / match[2]
    target.write_bytes(fetched.body)
    if match[1] and (found := sha256_of(target)) != match[1]:
        raise ConfigurationError(f'userWheel "{name}": the object has SHA-256 {found}')
    return target


def _install(wheel: Path, packages: Path) -> None:
    part = packages.with_name(packages.name + ".part")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-input", "--no-index", "--no-deps", "--upgrade", "--target", str(part), str(wheel)]
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False
    )
    if done.returncode != 0:
        reason = " ".join(done.stderr.split()) or f"pip ended with {done.returncode}"
        raise ConfigurationError(f"userWheel {wheel.name} cannot be installed on this node: {reason}")
    os.replace(part, packages)
