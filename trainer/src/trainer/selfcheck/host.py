"""What training needs of the machine beside its devices: disk, scratch space, a right clock."""

from __future__ import annotations

import email.utils
import time
import urllib.error
import urllib.request

from ..contracts.node_document import Scratch
from ..exit_codes import Exit
from .report import Finding
from .view import Host

DISK_WARN_GIB, DISK_FAIL_GIB = 10.0, 1.0
CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 60.0, 900.0  # AWS refuses calls that are 15 minutes off
CLOCK_TIMEOUT_SECONDS = 2.0
INSTANCE_STORE = "Amazon EC2 NVMe Instance Storage"  # the disks' own model name


def check_disk(path: str, host: Host) -> Finding:
    gib = host.free_gib(path)
    if gib is None:
        return Finding(check="disk", verdict="info", message=f"{path} is not there")
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


def check_scratch(scratch: Scratch | None, host: Host) -> Finding | None:
    """Is the instance store mounted where the document says? Without it the node works, on its root disk."""
    disks = instance_store_disks(host)
    if scratch is None:
        if not disks:
            return None
        message = f"{len(disks)} instance-store disks are not used: the document names no scratch space"
        return Finding(check="scratch", verdict="info", message=message)
    if host.is_mount(scratch.path):
        free = host.free_gib(scratch.path)
        told = f"{scratch.path} is mounted" + (f", {free:.0f} GiB free" if free is not None else "")
        return Finding(check="scratch", verdict="pass", message=told)
    who = "the image" if scratch.owner == "image" else "trainer-disks.service"
    return Finding(
        check="scratch",
        verdict="warning",
        message=f"nothing is mounted at {scratch.path}: datasets and checkpoints go to the root disk",
        cause=f"{who} did not mount the {len(disks)} instance-store disks that are there"
        if disks
        else "this machine has no instance-store disk, or none that can be seen",
        action="see journalctl -u trainer-disks, and lsblk"
        if disks
        else "compare the instance type with the group's",
        evidence={"disks": disks},
    )


def instance_store_disks(host: Host) -> list[str]:
    return [
        name
        for name in host.names("/sys/block")
        if (host.read(f"/sys/block/{name}/device/model") or "").strip() == INSTANCE_STORE
    ]


def check_clock(endpoint: str | None, host: Host) -> Finding:
    """Compares with the Date header of the S3 endpoint, which every node must reach anyway; else asks chrony."""
    if endpoint is None:
        return _by_chrony(host, "no document names a region")
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
        return _by_chrony(host, f"{endpoint} gave no date ({error})")
    return judge_clock((before + time.time()) / 2 - theirs, "S3")


def _by_chrony(host: Host, why: str) -> Finding:
    done = host.run("chronyc", "-c", "tracking")
    try:
        # Field 5 of chronyc's comma-separated answer: seconds that the system clock is behind (positive) the estimate.
        return (
            judge_clock(-float(done.output.split(",")[4]), "the time service")
            if done and done.code == 0
            else (Finding(check="clock", verdict="info", message=f"not compared: {why}"))
        )
    except (ValueError, IndexError):
        return Finding(check="clock", verdict="info", message=f"not compared: {why}")


def judge_clock(ahead_seconds: float, of: str = "S3") -> Finding:
    """``ahead_seconds``: this machine's clock minus the other one; S3's has a resolution of one second."""
    message = f"{abs(ahead_seconds):.0f} s {'ahead of' if ahead_seconds > 0 else 'behind'} {of}"
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
