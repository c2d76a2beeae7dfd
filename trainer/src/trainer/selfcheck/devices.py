"""Are the GPUs there that the instance type promises?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ..contracts.node_document import Promise
from ..devices.nvml import Nvml, NvmlUnavailable
from ..devices.reading import GpuHealth, GpuReading
from ..exit_codes import Exit
from .driver import mismatch
from .report import REPLACE, Finding, fail, info, passed, unknown, warning
from .view import Host

MEMORY_TOLERANCE = 0.15  # NVML's total lacks what the driver and ECC keep
OTHER = "the device or its slot, or another instance type than the document's"


@dataclass(frozen=True)
class Devices:
    """What NVML told of this machine's GPUs; empty where there are none or it cannot be asked."""

    readings: tuple[GpuReading, ...] = ()
    health: tuple[GpuHealth, ...] = ()
    driver: str | None = None


def check_devices(
    promise: Promise | None, host: Host, open_nvml: Callable[[], Nvml] = Nvml
) -> tuple[list[Finding], Devices]:
    """Without a promise (no document) what is there is only told."""
    if promise is not None and promise.accelerator == "none":
        message = "does not apply: this image has no accelerator driver; the node trains on its CPU"
        return [info("devices", message)], Devices()
    try:
        with open_nvml() as nvml:
            devices = Devices(tuple(nvml.readings()), tuple(nvml.health()), nvml.driver_version())
    except NvmlUnavailable as error:
        return [_unavailable(error, promise, host)], Devices()
    findings = _against_promise(promise, devices.readings)
    if not any(finding.verdict == "fail" for finding in findings):
        names = ", ".join(sorted({reading.name for reading in devices.readings}))
        message = f"{len(devices.readings)} x {names}, driver {devices.driver or 'unknown'}"
        findings.insert(0, passed("devices", message))
    return findings, devices


def _unavailable(error: NvmlUnavailable, promise: Promise | None, host: Host) -> Finding:
    if promise is None and error.library_missing:
        message = "does not apply: there is no NVIDIA driver on this machine; it trains on its CPU"
        return info("devices", message)
    cause = "the driver is not loaded, or the device nodes were taken away (systemctl daemon-reload)"
    todo = "see nvidia-smi and dmesg; reboot the node"
    if error.mismatch:
        cause = f"driver and library are of different versions: {mismatch(host)}"
        todo = "reboot, and switch off unattended upgrades in the image"
    return unknown("devices", f"the GPUs cannot be read: {error}", cause, todo, Exit.DRIVER)


def _against_promise(promise: Promise | None, readings: Sequence[GpuReading]) -> list[Finding]:
    if promise is None:
        return []
    bad = partial(fail, "devices", cause=OTHER, todo=REPLACE, code=Exit.DEVICE)
    type_, count = promise.instance_type, promise.gpu_count
    if len(readings) < count:
        message = f"{len(readings)} of the {count} GPUs of {type_} are there"
        return [bad(message, count=len(readings))]
    findings = []
    if len(readings) > count:
        findings.append(warning("devices", f"{len(readings)} GPUs where {type_} promises {count}"))
    for reading in readings:
        where = f"GPU {reading.index}"
        known = reading.name != "unknown" and not reading.lost  # what is not told is not another model
        if promise.gpu_model and known and not names_match(promise.gpu_model, reading.name):
            message = f'{where} is "{reading.name}", {type_} promises {promise.gpu_model}'
            findings.append(bad(message, gpu=reading.index, name=reading.name))
        total, promised = reading.memory_total_bytes, promise.gpu_memory_gib
        if total is not None and promised and abs(total / 2**30 - promised) > MEMORY_TOLERANCE * promised:
            message = f"{where} has {total / 2**30:.1f} GiB, {type_} promises {promised:.1f} GiB"
            findings.append(warning("devices", message))
    return findings


def names_match(promised: str, name: str) -> bool:
    """All words of the promised model occur in the device's name, whatever the case: "L40S" is not "L40"."""
    words = name.lower().replace("-", " ").split()
    return all(word in words for word in promised.lower().replace("-", " ").split())
