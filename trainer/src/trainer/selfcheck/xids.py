"""XIDs of this boot, from the kernel log: what each asks for, unless the GPU's own driver says otherwise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..devices.reading import GpuReading
from ..devices.xid import Xid, parse_xid
from ..devices.xid_actions import XidAction, xid_action
from ..exit_codes import Exit
from .report import Finding
from .view import Host

FELL_OFF = 79
JOURNAL = ("journalctl", "--dmesg", "--quiet", "--output=short-monotonic", "--boot")
CODES: dict[XidAction, Exit] = {"reset": Exit.RESET, "reboot": Exit.REBOOT, "replace": Exit.DEVICE}
TODO: dict[XidAction, str] = {
    "restart": "none: the program that was running had to be started again",
    "reset": "reset the GPU or reboot",
    "reboot": "reboot the node",
    "replace": "replace the node",
    "inspect": "see what the checks of memory and NVLink say",
    "watch": "none, unless it comes again",
    "unknown": "look it up in NVIDIA's XID catalogue",
}


def check_xids(readings: Sequence[GpuReading], host: Host) -> list[Finding]:
    """One finding a code and GPU. Where the kernel log cannot be read, that is said; it is no zero."""
    lines = kernel_log(host)
    if lines is None:
        message = (
            "the kernel log cannot be read (neither journalctl nor dmesg): XIDs of this boot are not known"
        )
        return [Finding(check="xid", verdict="info", message=message)]
    counts = Counter(xid for line in lines if (xid := parse_xid(line)))
    if not counts:
        return [Finding(check="xid", verdict="pass", message="none since boot")]
    before = {xid.code for line in kernel_log(host, "-1") or () if (xid := parse_xid(line))}
    return [_judge(xid, count, readings, before) for xid, count in sorted(counts.items(), key=_order)]


def kernel_log(host: Host, boot: str = "0") -> list[str] | None:
    done = host.run(*JOURNAL, boot)
    if done is None or done.code != 0:
        done = host.run("dmesg") if boot == "0" else None
    return done.output.splitlines() if done is not None and done.code == 0 else None


def _order(item: tuple[Xid, int]) -> tuple[int, str]:
    return item[0].code, item[0].pci_bus_id


def _judge(xid: Xid, count: int, readings: Sequence[GpuReading], before: set[int]) -> Finding:
    action = xid_action(xid.code)
    reading = next((r for r in readings if _place(r.pci_bus_id) == xid.pci_bus_id), None)
    where = f"GPU {reading.index}" if reading else f"PCI {xid.pci_bus_id}"
    message = f"XID {xid.code} on {where}{f', {count} times' if count > 1 else ''} since boot: {action}"
    evidence = {"xid": xid.code, "pciBusId": xid.pci_bus_id, "count": count, "action": action}
    if xid.code == FELL_OFF and FELL_OFF in before:
        action, message = "replace", f"{message}, and in the boot before"
    code = CODES.get(action)
    if code is not None and reading is not None and reading.recovery_action == "none":
        # The driver knows this GPU's state now; the table only knows the code.
        message = f"{message}; the driver asks for nothing any more"
        return Finding(check="xid", verdict="warning", message=message, evidence=evidence)
    return Finding(
        check="xid",
        verdict="fail" if code is not None else "info" if action in ("restart", "watch") else "warning",
        message=message,
        cause="an error of the GPU, its memory or its link" if code is not None else None,
        action=TODO[action],
        evidence=evidence,
        exit_code=code,
    )


def _place(bus_id: str | None) -> str | None:
    """NVML's 00000000:3B:00.0 as the kernel writes it: 0000:3b:00."""
    return bus_id[4:].rpartition(".")[0].lower() if bus_id else None
