"""Each GPU's own health: memory errors, rows and pages, what its driver asks for, its NVLinks, its PCIe link.

Thresholds: azurehpc-health-checks 0e0a1ac, and ml-engineering 744d01e for errors over a GPU's life. The driver's own
recovery action goes before any of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..devices.reading import GpuHealth, GpuReading
from ..exit_codes import Exit
from .report import Finding, Verdict

MOST_CORRECTED_SRAM, MOST_CORRECTED_DRAM = 10_000, 20_000_000
MOST_REMAPPED_ROWS = 512
MOST_RETIRED_PAGES = 61
MOST_SRAM_OF_A_LIFE = 4
LEAST_PCIE_WIDTH = 8  # DCGM's least for the T4 and A10G of EC2, which have fewer lanes than others
# Recovery action of NVML field 230 -> exit code
ACTIONS = {
    "reset": Exit.RESET,
    "bus-reset": Exit.RESET,
    "drain-p2p": Exit.RESET,
    "drain-and-reset": Exit.RESET,
    "reboot": Exit.REBOOT,
}
TODO = {
    Exit.RESET: "reset the GPU or reboot",
    Exit.REBOOT: "reboot the node",
    Exit.DEVICE: "replace the node",
}


def check_health(readings: Sequence[GpuReading], health: Sequence[GpuHealth]) -> list[Finding]:
    """One finding of pass, or one for each thing that is wrong. A value that is not told says nothing."""
    findings = []
    for reading, seldom in zip(readings, health, strict=True):
        findings += _gone(reading) or [*_asked(reading), *_memory(reading, seldom)]
    if findings or not readings:
        return findings
    silent = sum(reading.ecc_uncorrected is None for reading in readings)
    told = f"{len(readings)} GPUs without memory errors, nothing asked for by the driver"
    if silent:
        told = (
            f"nothing bad told; {silent} of {len(readings)} GPUs do not tell of memory errors (not supported)"
        )
    return [Finding(check="health", verdict="pass", message=told)]


def _gone(reading: GpuReading) -> list[Finding]:
    where = f"GPU {reading.index} ({reading.uuid})"
    if reading.lost:
        return [_bad(reading, f"{where} is lost", Exit.DEVICE, "it fell off the bus (XID 79)")]
    if reading.fault:
        return [_bad(reading, f"{where} cannot be used: {reading.fault}", Exit.DEVICE)]
    return []


def _asked(reading: GpuReading) -> list[Finding]:
    action, where = reading.recovery_action, f"GPU {reading.index}"
    if action in (None, "none"):
        return []
    if action in ACTIONS:
        message = f"{where}: the driver asks for: {action}"
        return [_bad(reading, message, ACTIONS[action], "an error that it cannot go on from", action=action)]
    return [
        _note(
            reading, f"{where}: the driver asks for an action that is not known here: {action}", action=action
        )
    ]


def _memory(reading: GpuReading, seldom: GpuHealth) -> list[Finding]:
    where, found = f"GPU {reading.index}", []
    uncorrected = max(reading.ecc_uncorrected or 0, seldom.ecc_uncorrected_sram or 0)
    if uncorrected:
        message = f"{where}: {uncorrected} uncorrected memory errors since the driver was loaded"
        place = "SRAM" if seldom.ecc_uncorrected_sram else "device memory"
        found.append(_bad(reading, message, Exit.DEVICE, f"faulty {place}", count=uncorrected))
    for name, count, most in (
        ("SRAM", seldom.ecc_corrected_sram, MOST_CORRECTED_SRAM),
        ("device memory", seldom.ecc_corrected_dram, MOST_CORRECTED_DRAM),
    ):
        if (count or 0) > most:
            message = f"{where}: {count} corrected errors of {name}, more than {most} are too many"
            found.append(_bad(reading, message, Exit.DEVICE, f"{name} is wearing out", count=count))
    if reading.remap_failed:
        found.append(
            _bad(reading, f"{where}: a memory row could not be remapped", Exit.DEVICE, "no spare row is left")
        )
    if reading.remap_pending:
        message = f"{where}: a memory row waits for a reset to be remapped"
        found.append(_bad(reading, message, Exit.RESET, "an uncorrectable error of that row"))
    if (seldom.remapped_uncorrectable or 0) > MOST_REMAPPED_ROWS:
        rows = seldom.remapped_uncorrectable
        message = (
            f"{where}: {rows} rows were remapped after uncorrectable errors, more than {MOST_REMAPPED_ROWS}"
        )
        found.append(_bad(reading, message, Exit.DEVICE, "device memory is wearing out", rows=rows))
    if (seldom.retired_pages or 0) > MOST_RETIRED_PAGES:
        message = f"{where}: {seldom.retired_pages} memory pages are retired, 62 are too many"
        found.append(
            _bad(reading, message, Exit.DEVICE, "device memory is wearing out", pages=seldom.retired_pages)
        )
    if seldom.retired_pages_pending:
        message = f"{where}: a memory page waits for a reboot to be retired"
        found.append(_bad(reading, message, Exit.REBOOT, "a memory error of that page"))
    life = seldom.ecc_uncorrected_sram_aggregate or 0
    if life > MOST_SRAM_OF_A_LIFE:
        found.append(
            _note(
                reading, f"{where}: {life} uncorrected SRAM errors in its life: due for exchange", count=life
            )
        )
    return found


def check_nvlink(readings: Sequence[GpuReading], health: Sequence[GpuHealth]) -> list[Finding]:
    """All links active where the model has any. Errors since the driver was loaded are told."""
    linked = [(reading, seldom) for reading, seldom in zip(readings, health, strict=True) if seldom.nvlinks]
    if not linked:
        if not readings:
            return []
        return [Finding(check="nvlink", verdict="info", message="does not apply: these GPUs have no NVLink")]
    findings = []
    for reading, seldom in linked:
        if seldom.nvlinks_inactive:
            message = (
                f"GPU {reading.index}: {seldom.nvlinks_inactive} of {seldom.nvlinks} NVLinks are inactive"
            )
            findings.append(
                _finding(
                    reading,
                    "nvlink",
                    "fail",
                    message,
                    Exit.DEVICE,
                    "a link, or the fabric manager's set-up of it",
                )
            )
        recovered = {name: count for name, count in (seldom.nvlink_errors or {}).items() if count}
        if recovered:
            told = ", ".join(f"{count} {name}" for name, count in recovered.items())
            message = f"GPU {reading.index}: NVLink errors since the driver was loaded: {told}"
            findings.append(_finding(reading, "nvlink", "info", message, None, None, **recovered))
    if any(finding.verdict != "info" for finding in findings):
        return findings
    links = sorted({seldom.nvlinks or 0 for _, seldom in linked})
    message = f"{'/'.join(map(str, links))} NVLinks of {len(linked)} GPUs are active"
    return [Finding(check="nvlink", verdict="pass", message=message), *findings]


def check_pcie(
    readings: Sequence[GpuReading], health: Sequence[GpuHealth], seen: dict[int, tuple[int, int]]
) -> list[Finding]:
    """``seen``: GPU index -> the best (generation, width) while it worked; an idle GPU tells less than it can."""
    findings, told = [], []
    for reading, seldom in zip(readings, health, strict=True):
        if reading.index not in seen or not seldom.pcie_generation_max or not seldom.pcie_width_max:
            continue
        (generation, width), most = seen[reading.index], (seldom.pcie_generation_max, seldom.pcie_width_max)
        told.append(f"gen {generation} x{width}")
        message = f"GPU {reading.index}: PCIe {told[-1]} under load, gen {most[0]} x{most[1]} is possible"
        evidence = {"generation": generation, "width": width, "possible": list(most)}
        cause = "a bad contact, or lanes that failed to train"
        if width < min(LEAST_PCIE_WIDTH, most[1]):
            findings.append(_finding(reading, "pcie", "fail", message, Exit.PERFORMANCE, cause, **evidence))
        elif (generation, width) < most or width < most[1]:
            findings.append(_finding(reading, "pcie", "warning", message, None, cause, **evidence))
    if findings or not readings:
        return findings
    if not told:
        message = "not told by these GPUs (not supported)"
        return [Finding(check="pcie", verdict="info", message=message)]
    return [Finding(check="pcie", verdict="pass", message=f"{', '.join(sorted(set(told)))} under load")]


def _bad(
    reading: GpuReading, message: str, code: Exit, cause: str = "the device or its slot", **more: Any
) -> Finding:
    return _finding(reading, "health", "fail", message, code, cause, **more)


def _note(reading: GpuReading, message: str, **more: Any) -> Finding:
    return _finding(reading, "health", "warning", message, None, None, **more)


def _finding(
    reading: GpuReading,
    check: str,
    verdict: Verdict,
    message: str,
    code: Exit | None,
    cause: str | None,
    **more: Any,
) -> Finding:
    return Finding(
        check=check,
        verdict=verdict,
        message=message,
        cause=cause,
        action=TODO.get(code, "replace the node") if code is not None else None,
        evidence={"gpu": reading.index, "uuid": reading.uuid, **more},
        exit_code=code,
    )
