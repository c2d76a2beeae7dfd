"""Each GPU's own health: memory errors, rows and pages, what its driver asks for, its NVLinks, its PCIe link.

Thresholds: azurehpc-health-checks 0e0a1ac, and ml-engineering 744d01e for errors over a GPU's life. The driver's own
recovery action goes before any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..devices.floors import floors_for
from ..devices.reading import GpuHealth, GpuReading
from ..exit_codes import Exit
from .report import REPLACE, Finding, fail, info, passed, warning

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
REMEDIES = {
    Exit.RESET: "reset the GPU or reboot",
    Exit.REBOOT: "reboot the node",
    Exit.DEVICE: REPLACE,
}


def check_health(readings: Sequence[GpuReading], health: Sequence[GpuHealth]) -> list[Finding]:
    """One finding of pass, or one for each thing that is wrong. A value that is not told says nothing."""
    findings: list[Finding] = []
    for reading, seldom in zip(readings, health, strict=True):
        findings += [*_gone(reading)] or [*_asked(reading), *_memory(reading, seldom)]
    if findings or not readings:
        return findings
    silent = sum(reading.ecc_uncorrected is None for reading in readings)
    told = f"{len(readings)} GPUs without memory errors, nothing asked for by the driver"
    if silent:
        told = (
            f"nothing bad told; {silent} of {len(readings)} GPUs do not tell of memory errors (not supported)"
        )
    return [passed("health", told)]


def _gone(reading: GpuReading) -> Iterator[Finding]:
    where = f"GPU {reading.index} ({reading.uuid})"
    if reading.lost:
        yield _bad(reading, f"{where} is lost", Exit.DEVICE, "it fell off the bus (XID 79)")
    elif reading.fault:
        yield _bad(reading, f"{where} cannot be used: {reading.fault}", Exit.DEVICE, "the device or its slot")


def _asked(reading: GpuReading) -> Iterator[Finding]:
    action = reading.recovery_action
    message = f"GPU {reading.index}: the driver asks for"
    if action in ACTIONS:
        cause = "an error that it cannot go on from"
        yield _bad(reading, f"{message}: {action}", ACTIONS[action], cause, action=action)
    elif action not in (None, "none"):
        yield _note(reading, f"{message} an action that is not known here: {action}", action=action)


def _memory(reading: GpuReading, seldom: GpuHealth) -> Iterator[Finding]:
    where, worn = f"GPU {reading.index}", "device memory is wearing out"
    sram, dram = seldom.ecc_uncorrected_sram, seldom.ecc_uncorrected_dram
    if errors := max(reading.ecc_uncorrected or 0, sram or 0, dram or 0):
        message = f"{where}: {errors} uncorrected memory errors since the driver was loaded"
        if sram == 0 and dram:  # that row or page can be taken out of use; what cannot is told further below
            code = Exit.REBOOT if reading.remap_pending is None else Exit.RESET
            yield _bad(reading, message, code, "a faulty row or page of device memory", count=errors)
        else:
            yield _bad(
                reading, message, Exit.DEVICE, "faulty SRAM" if sram else "faulty memory", count=errors
            )
    for name, count, most in (
        ("SRAM", seldom.ecc_corrected_sram, MOST_CORRECTED_SRAM),
        ("device memory", seldom.ecc_corrected_dram, MOST_CORRECTED_DRAM),
    ):
        if (count or 0) > most:
            message = f"{where}: {count} corrected errors of {name}, more than {most} are too many"
            yield _bad(reading, message, Exit.DEVICE, f"{name} is wearing out", count=count)
    if reading.remap_failed:
        message = f"{where}: a memory row could not be remapped"
        yield _bad(reading, message, Exit.DEVICE, "no spare row is left")
    if reading.remap_pending:
        message = f"{where}: a memory row waits for a reset to be remapped"
        yield _bad(reading, message, Exit.RESET, "an uncorrectable error of that row")
    if (rows := seldom.remapped_uncorrectable or 0) > MOST_REMAPPED_ROWS:
        message = f"{where}: {rows} rows were remapped after uncorrectable errors, {MOST_REMAPPED_ROWS} are the most"
        yield _bad(reading, message, Exit.DEVICE, worn, rows=rows)
    if (pages := seldom.retired_pages or 0) > MOST_RETIRED_PAGES:
        message = f"{where}: {pages} memory pages are retired, {MOST_RETIRED_PAGES} are the most"
        yield _bad(reading, message, Exit.DEVICE, worn, pages=pages)
    if seldom.retired_pages_pending:
        message = f"{where}: a memory page waits for a reboot to be retired"
        yield _bad(reading, message, Exit.REBOOT, "a memory error of that page")
    if (life := seldom.ecc_uncorrected_sram_aggregate or 0) > MOST_SRAM_OF_A_LIFE:
        message = f"{where}: {life} uncorrected SRAM errors in its life: due for exchange"
        yield _note(reading, message, count=life)


def check_nvlink(readings: Sequence[GpuReading], health: Sequence[GpuHealth]) -> list[Finding]:
    """All links active where the model has any and there is a peer. Errors since the driver was loaded are told."""
    if not readings:
        return []
    if len(readings) == 1:  # of a type with one GPU of eight, whose links lead nowhere
        return [info("nvlink", "does not apply: there is one GPU")]
    linked = [(reading, seldom) for reading, seldom in zip(readings, health, strict=True) if seldom.nvlinks]
    if not linked:
        row = floors_for(readings[0].pci_device_id, readings[0].name, readings[0].memory_total_bytes)
        if row is not None and row.nvlink_bus_gigabytes_per_second is not None:
            return [warning("nvlink", f"none is told of, though a {row.name} has NVLink")]
        return [info("nvlink", "does not apply: these GPUs have no NVLink")]
    findings = []
    for reading, seldom in linked:
        where: dict[str, Any] = {"gpu": reading.index, "uuid": reading.uuid}
        if seldom.nvlinks_inactive:
            message = (
                f"GPU {reading.index}: {seldom.nvlinks_inactive} of {seldom.nvlinks} NVLinks are inactive"
            )
            cause = "a link, or the fabric manager's set-up of it"
            findings.append(fail("nvlink", message, cause, REPLACE, Exit.DEVICE, **where))
        recovered: dict[str, Any] = {
            name: count for name, count in (seldom.nvlink_errors or {}).items() if count
        }
        if recovered:
            told = ", ".join(f"{count} {name}" for name, count in recovered.items())
            message = f"GPU {reading.index}: NVLink errors since the driver was loaded: {told}"
            findings.append(info("nvlink", message, **where, **recovered))
    if any(finding.verdict != "info" for finding in findings):
        return findings
    links = sorted({seldom.nvlinks or 0 for _, seldom in linked})
    message = f"{'/'.join(map(str, links))} NVLinks of {len(linked)} GPUs are active"
    return [passed("nvlink", message), *findings]


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
        evidence = {"gpu": reading.index, "uuid": reading.uuid, "possible": list(most)}
        evidence |= {"generation": generation, "width": width}
        cause = "a bad contact, or lanes that failed to train"
        if width < min(LEAST_PCIE_WIDTH, most[1]):
            findings.append(fail("pcie", message, cause, REPLACE, Exit.PERFORMANCE, **evidence))
        elif generation < most[0] or width < most[1]:
            findings.append(warning("pcie", message, cause, **evidence))
    if findings or not readings:
        return findings
    if not told:
        return [info("pcie", "not told by these GPUs (not supported)")]
    return [passed("pcie", f"{', '.join(sorted(set(told)))} under load")]


def _bad(reading: GpuReading, message: str, code: Exit, cause: str, **evidence: Any) -> Finding:
    evidence |= {"gpu": reading.index, "uuid": reading.uuid}
    return fail("health", message, cause, REMEDIES[code], code, **evidence)


def _note(reading: GpuReading, message: str, **evidence: Any) -> Finding:
    return warning("health", message, gpu=reading.index, uuid=reading.uuid, **evidence)
