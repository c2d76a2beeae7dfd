"""What training needs of the machine beside its devices: shared memory, disk, a right clock."""

from __future__ import annotations

import email.utils
import os
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path

from ..exit_codes import Exit
from .report import Finding

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108  the kernel's, no temporary folder of ours
SHARED_MEMORY_MIB = 1024  # for NCCL and data loaders; with a container's 64 MiB they end in a bus error
DISK_WARN_GIB, DISK_FAIL_GIB = 10.0, 1.0
CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 60.0, 900.0  # AWS refuses calls that are 15 minutes off
CLOCK_TIMEOUT_SECONDS = 2.0


def check_shared_memory(processes: int, path: Path = SHARED_MEMORY) -> Finding:
    """``processes``: workers on this node. One alone exchanges nothing through shared memory."""
    try:
        mib = os.statvfs(path).f_blocks * os.statvfs(path).f_frsize / 2**20
    except OSError as error:
        return Finding(
            check="shared-memory", verdict="info", message=f"{path} is not there ({error.strerror})"
        )
    message = f"{path} has {mib:.0f} MiB"
    if mib >= SHARED_MEMORY_MIB:
        return Finding(check="shared-memory", verdict="pass", message=message)
    return Finding(
        check="shared-memory",
        verdict="warning" if processes < 2 else "fail",
        message=f"{message}, {SHARED_MEMORY_MIB} are wanted for several processes on one node",
        cause="a container's default of 64 MiB",
        action="start the container with --shm-size 8g or --ipc=host",
        evidence={"mib": round(mib)},
        exit_code=None if processes < 2 else Exit.CONFIGURATION,
    )


def check_disk(path: Path) -> Finding:
    gib = shutil.disk_usage(path).free / 2**30
    message = f"{gib:.1f} GiB free at {path}"
    if gib >= DISK_WARN_GIB:
        return Finding(check="disk", verdict="pass", message=message)
    fail = gib < DISK_FAIL_GIB
    return Finding(
        check="disk",
        verdict="fail" if fail else "warning",
        message=f"{message}: datasets and checkpoints may not fit",
        action="raise rootVolumeGib of the group",
        evidence={"freeGib": round(gib, 2)},
        exit_code=Exit.CONFIGURATION if fail else None,
    )


def check_clock(endpoint: str | None) -> Finding:
    """Compares with the Date header of the S3 endpoint, which every node must reach anyway."""
    if endpoint is None:
        return Finding(check="clock", verdict="info", message="not compared: no document names a region")
    before = time.time()
    try:
        request = urllib.request.Request(endpoint, method="HEAD")  # noqa: S310  AWS's or the SDK variable's
        try:
            with urllib.request.urlopen(request, timeout=CLOCK_TIMEOUT_SECONDS) as answer:  # noqa: S310
                date = answer.headers.get("Date")
        except urllib.error.HTTPError as error:  # 403 and 405 carry a date as well
            date = error.headers.get("Date")
        theirs = email.utils.parsedate_to_datetime(date or "").timestamp()
    except (OSError, ValueError, TypeError) as error:
        return Finding(
            check="clock", verdict="info", message=f"not compared: {endpoint} gave no date ({error})"
        )
    return judge_clock((before + time.time()) / 2 - theirs)


def judge_clock(ahead_seconds: float) -> Finding:
    """``ahead_seconds``: this machine's clock minus S3's, which has a resolution of one second."""
    message = f"{abs(ahead_seconds):.0f} s {'ahead of' if ahead_seconds > 0 else 'behind'} S3"
    if abs(ahead_seconds) < CLOCK_WARN_SECONDS:
        return Finding(check="clock", verdict="pass", message=message)
    fail = abs(ahead_seconds) >= CLOCK_FAIL_SECONDS
    return Finding(
        check="clock",
        verdict="fail" if fail else "warning",
        message=f"the clock is {message}",
        cause="the time service (chrony) does not run or has not synchronised yet",
        action="start it and wait for it; AWS refuses signed calls that are 15 minutes off",
        evidence={"aheadSeconds": round(ahead_seconds)},
        exit_code=Exit.S3 if fail else None,
    )
