"""What training needs of the machine beside its devices: disk, scratch space, a right clock."""

from __future__ import annotations

import email.utils
import http.client
import time
import urllib.error
import urllib.request

from ..contracts.node_document import Scratch
from ..disks.scratch import MODEL
from ..exit_codes import Exit
from .report import Finding, fail, info, passed, warning
from .view import Host

DISK_WARN_GIB, DISK_FAIL_GIB = 10.0, 1.0
CLOCK_WARN_SECONDS, CLOCK_FAIL_SECONDS = 60.0, 900.0  # AWS refuses calls that are 15 minutes off
CLOCK_TIMEOUT_SECONDS = 2.0


def check_disk(path: str, host: Host) -> Finding:
    gib = host.free_gib(path)
    if gib is None:
        return info("disk", f"{path} is not there")
    message = f"{gib:.1f} GiB free at {path}"
    if gib >= DISK_WARN_GIB:
        return passed("disk", message)
    verdict, code = (fail, Exit.CONFIGURATION) if gib < DISK_FAIL_GIB else (warning, None)
    cause, todo = "the volume is too small for this group's work", "raise rootVolumeGib of the group"
    message = f"{message}: datasets and checkpoints may not fit"
    return verdict("disk", message, cause, todo, code, freeGib=round(gib, 2))


def check_scratch(scratch: Scratch | None, host: Host) -> Finding | None:
    """Is the instance store mounted where the document says? Without it the node works, on its root disk."""
    disks = instance_store_disks(host)
    if scratch is None:
        if not disks:
            return None
        message = f"{len(disks)} instance-store disks are not used: the document names no scratch space"
        return info("scratch", message)
    if host.is_mount(scratch.path):
        free = host.free_gib(scratch.path)
        told = f"{scratch.path} is mounted" + (f", {free:.0f} GiB free" if free is not None else "")
        return passed("scratch", told)
    message = f"nothing is mounted at {scratch.path}: datasets and checkpoints go to the root disk"
    if not disks:
        cause = "this machine has no instance-store disk, or none that can be seen"
        return warning("scratch", message, cause, "compare the instance type with the group's", disks=disks)
    who = "the image" if scratch.owner == "image" else "trainer-disks.service"
    cause = f"{who} did not mount the {len(disks)} instance-store disks that are there"
    return warning("scratch", message, cause, "see journalctl -u trainer-disks, and lsblk", disks=disks)


def instance_store_disks(host: Host) -> list[str]:
    return [
        name
        for name in host.names("/sys/block")
        if (host.read(f"/sys/block/{name}/device/model") or "").strip() == MODEL
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
    except (OSError, http.client.HTTPException, ValueError, TypeError) as error:
        return _by_chrony(host, f"{endpoint} gave no date ({error})")
    return judge_clock((before + time.time()) / 2 - theirs, "S3")


def _by_chrony(host: Host, why: str) -> Finding:
    """Of chronyc's comma-separated answer: the fifth field is how many seconds the system clock is behind the
    estimate, the last one the leap status. Before its first synchronisation the estimate is 0, which says nothing.
    """
    asked = host.run("chronyc", "-c", "tracking")
    fields = asked.output.strip().split(",") if asked and asked.code == 0 else []
    if fields[-1:] == ["Not synchronised"]:
        return info("clock", f"not compared: {why}, and chrony has not synchronised yet")
    try:
        return judge_clock(-float(fields[4]), "the time service")
    except (ValueError, IndexError):
        return info("clock", f"not compared: {why}")


def judge_clock(ahead_seconds: float, of: str = "S3") -> Finding:
    """``ahead_seconds``: this machine's clock minus the other one; S3's has a resolution of one second."""
    off = abs(ahead_seconds)
    message = f"{off:.0f} s {'ahead of' if ahead_seconds > 0 else 'behind'} {of}"
    if off < CLOCK_WARN_SECONDS:
        return passed("clock", message)
    verdict, code = (fail, Exit.S3) if off >= CLOCK_FAIL_SECONDS else (warning, None)
    cause = "the time service (chrony) does not run or has not synchronised yet"
    todo = "start it and wait for it; AWS refuses signed calls that are 15 minutes off"
    message = f"the clock is {message}"
    return verdict("clock", message, cause, todo, code, aheadSeconds=round(ahead_seconds))
