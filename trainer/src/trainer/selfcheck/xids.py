"""XIDs of this boot, from the kernel log: what each asks for, unless the GPU's own driver says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..devices.reading import GpuReading
from ..devices.xid import Xid, parse_xid
from ..devices.xid_actions import XidAction, xid_action
from ..devices.xid_nvml import kernels_place
from ..exit_codes import Exit
from .report import REPLACE, Finding, fail, info, passed, warning
from .view import Host

FELL_OFF = 79
JOURNAL = ("journalctl", "--dmesg", "--quiet", "--output=short-monotonic", "--boot")
CODES: dict[XidAction, Exit] = {"reset": Exit.RESET, "reboot": Exit.REBOOT, "replace": Exit.DEVICE}
REMEDIES: dict[XidAction, str] = {
    "restart": "none: the program that was running had to be started again",
    "reset": "reset the GPU or reboot",
    "reboot": "reboot the node",
    "replace": REPLACE,
    "inspect": "see what the checks of memory and NVLink say",
    "watch": "none, unless it comes again",
    "unknown": "look it up in NVIDIA's XID catalogue",
}


def check_xids(readings: Sequence[GpuReading], host: Host) -> list[Finding]:
    """One finding a code and GPU. Where the kernel log cannot be read, that is said; it is no zero."""
    lines = kernel_log(host)
    if lines is None:
        log = "the kernel log cannot be read (neither journalctl nor dmesg)"
        return [info("xid", f"{log}: XIDs of this boot are not known")]
    counts = Counter(xid for line in lines if (xid := parse_xid(line)))
    if not counts:
        return [passed("xid", "none since boot")]
    before = {xid.code for line in kernel_log(host, "-1") or () if (xid := parse_xid(line))}
    order = sorted(counts.items(), key=lambda item: (item[0].code, item[0].pci_bus_id))
    return [_judge(xid, count, readings, before) for xid, count in order]


def kernel_log(host: Host, boot: str = "0") -> list[str] | None:
    """None where it cannot be read. A boot without any kernel line is one that this user may not see."""
    for command in ((*JOURNAL, boot), *([("dmesg",)] if boot == "0" else [])):
        done = host.run(*command)
        if done is not None and done.code == 0 and done.output.strip():
            return done.output.splitlines()
    return None


def _judge(xid: Xid, count: int, readings: Sequence[GpuReading], before: set[int]) -> Finding:
    action = xid_action(xid.code)
    reading = next((r for r in readings if kernels_place(r.pci_bus_id or "") == xid.pci_bus_id), None)
    where = f"GPU {reading.index}" if reading else f"PCI {xid.pci_bus_id}"
    message = f"XID {xid.code} on {where}{f', {count} times' if count > 1 else ''} since boot: {action}"
    evidence = {"xid": xid.code, "pciBusId": xid.pci_bus_id, "count": count, "action": action}
    if xid.code == FELL_OFF and FELL_OFF in before:
        action, message = "replace", f"{message}, and in the boot before"
    code = CODES.get(action)
    if code is None:
        verdict = info if action in ("restart", "watch") else warning
        return verdict("xid", message, None, REMEDIES[action], **evidence)
    if reading is not None and reading.recovery_action == "none":
        # The driver knows this GPU's state now; the table only knows the code.
        return warning("xid", f"{message}; the driver asks for nothing any more", **evidence)
    return fail(
        "xid", message, "an error of the GPU, its memory or its link", REMEDIES[action], code, **evidence
    )
