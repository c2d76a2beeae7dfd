"""Debian packages: installed only where the caller asked for it by SETUP_SYSTEM=1, else named in one line."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from . import rootfs
from .places import ROOT, cache
from .running import Failed, Work

INSTALL_LIMIT_SECONDS = 600.0
# Package -> the command by which it is known to be there.
PACKAGES = {
    "prometheus": "promtool",
    "prometheus-alertmanager": "amtool",
    "curl": "curl",
    "xfsprogs": "mkfs.xfs",
    **{package: command for command, package in rootfs.TOOLS.items()},
}
SERVICES = ("prometheus", "prometheus-alertmanager")
# While this file exists and exits 101, Debian's package scripts start no service.
START_POLICY = Path("/usr/sbin/policy-rc.d")


def missing() -> list[str]:
    """Packages whose command is not on PATH; Debian's Python has its venv module in a package of its own."""
    absent = [package for package, command in PACKAGES.items() if shutil.which(command) is None]
    importlib.invalidate_caches()
    return absent if importlib.util.find_spec("ensurepip") else [*absent, "python3-venv"]


def wanted() -> bool:
    return os.environ.get("SETUP_SYSTEM") == "1"


def provide_packages(work: Work) -> None:
    """Install what is missing if asked to, else say what to type. No service is started or left enabled."""
    absent = missing()
    if not absent:
        return
    if not wanted():
        work.say(
            f"optional system packages are missing, to get them: sudo apt-get install {' '.join(absent)}"
        )
        return
    log = cache() / "logs" / "system.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    if os.geteuid() != 0 and shutil.which("sudo") is not None:
        # This very step, as root; it asks for no password.
        variables = ["SETUP_SYSTEM=1", f"GPU_TRAINING_CACHE={cache()}"]
        again = [sys.executable, "-m", "localcloud.toolchain", "ensure", "system"]
        with work.step("system packages", log):
            work.run(["sudo", "-n", "env", *variables, *again], log, INSTALL_LIMIT_SECONDS, cwd=ROOT)
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise Failed(f"SETUP_SYSTEM=1 needs root and apt-get to install {' '.join(absent)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    with work.step("system packages", log), _no_service_starts():
        work.run(["apt-get", "update", "-q"], log, INSTALL_LIMIT_SECONDS, env)
        install = ["apt-get", "install", "-q", "-y", "--no-install-recommends", *absent]
        work.run(install, log, INSTALL_LIMIT_SECONDS, env)
        if shutil.which("systemctl") is not None:
            installed = [service for service in SERVICES if service in absent]
            if installed:
                work.run(["systemctl", "disable", *installed], log, INSTALL_LIMIT_SECONDS, env)
    still = missing()
    if still:
        raise Failed(f"apt-get installed {' '.join(still)}, but they are still not to be found; log: {log}")


@contextmanager
def _no_service_starts() -> Iterator[None]:
    if START_POLICY.exists():  # the machine's owner has a policy: it is not ours to change
        yield
        return
    START_POLICY.write_text("#!/bin/sh\nexit 101\n")
    START_POLICY.chmod(0o755)
    try:
        yield
    finally:
        START_POLICY.unlink(missing_ok=True)
