"""The matrix benchmark's verdict: exact, repeatable, as fast as its peers and as its kind; and why, where it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..devices.floors import GpuFloors, floors_for
from ..devices.reading import HARDWARE_REASONS
from ..exit_codes import Exit
from .report import Finding, LoadFigure, MatmulFigure

PEER_RATIO = 0.9  # of the best GPU in the node
HARDWARE = frozenset(HARDWARE_REASONS.values())
CAUSES = {
    "hw_slowdown": "hardware held the clock down (heat or power)",
    "hw_thermal": "heat held the clock down in hardware",
    "hw_power_brake": "a power brake signal from the board",
    "sw_thermal": "heat held the clock down",
    "sw_power_cap": "the power limit held the clock down, which is normal at full load",
}


def judge(
    measured: Sequence[MatmulFigure],
    floors: Mapping[str, float],
    level: str,
    load: Mapping[str, LoadFigure] | None = None,
) -> list[Finding]:
    """Numbers first, then speed in three parts: peers, floor, cause. ``load``: device -> what its GPU did meanwhile.

    A GPU without a published floor is told so and does not fail for it.
    """
    load = load or {}
    findings = [finding for figure in measured for finding in _exactness(figure)]
    findings += _same_bits(measured)
    findings += [found for figure in measured if (found := _speed(figure, measured, floors, level, load))]
    if not findings:
        best = max(measured, key=lambda figure: figure.tflops_median)
        text = f"{best.tflops_median:.3g} TFLOPS in {best.dtype} on {best.device}, exact and repeatable"
        findings = [Finding(check="matmul", verdict="pass", message=text)]
    if measured and all(figure.floor_tflops is None for figure in measured):
        where = (
            "a CPU" if measured[0].device == "cpu" else f"PCI device {measured[0].pci_device_id or 'unknown'}"
        )
        findings.append(
            Finding(check="matmul", verdict="info", message=f"floors do not apply: none for {where}")
        )
    return findings


def _exactness(figure: MatmulFigure) -> list[Finding]:
    where, findings = f"{figure.device} {figure.dtype}", []
    evidence = {"device": figure.device, "dtype": figure.dtype, "n": figure.n}
    if figure.error > figure.tolerance:
        message = f"{where}: error {figure.error:.2g} against float64, allowed {figure.tolerance:.2g}"
        findings.append(_fail(message, Exit.DEVICE, "wrong results: faulty arithmetic or memory", evidence))
    if not figure.repeatable:
        message = f"{where}: the same product gave different bits in {figure.repeats} repeats"
        findings.append(_fail(message, Exit.DEVICE, "silent data corruption", evidence))
    if not figure.tflops_median > 0:
        findings.append(
            _fail(f"{where}: no operation was done", Exit.DEVICE, "the device does not compute", evidence)
        )
    return findings


def _same_bits(measured: Sequence[MatmulFigure]) -> list[Finding]:
    """GPUs of one kind must agree bit by bit: same numbers, same kernel. The one that differs from most is named."""
    findings = []
    for dtype in sorted({figure.dtype for figure in measured}):
        alike = [f for f in measured if f.dtype == dtype and f.digest and f.device != "cpu"]
        if len({(f.name, f.pci_subsystem_id, f.n) for f in alike}) != 1:
            continue
        votes: dict[str, list[MatmulFigure]] = {}
        for figure in alike:
            votes.setdefault(figure.digest or "", []).append(figure)
        most = max(len(figures) for figures in votes.values())
        tied = sum(len(figures) == most for figures in votes.values()) > 1
        for figures in votes.values() if len(votes) > 1 else ():
            if len(figures) < most or tied:
                names = ", ".join(figure.device for figure in figures)
                message = f"{names} {dtype}: other bits than the other GPUs of this node for the same product"
                evidence = {"device": names, "dtype": dtype, "agree": most, "of": len(alike)}
                findings.append(_fail(message, Exit.DEVICE, "silent data corruption", evidence))
    return findings


def _speed(
    figure: MatmulFigure,
    measured: Sequence[MatmulFigure],
    floors: Mapping[str, float],
    level: str,
    load: Mapping[str, LoadFigure],
) -> Finding | None:
    peers = [peer for peer in measured if peer.dtype == figure.dtype]
    best, floor, tflops = max(peer.tflops_median for peer in peers), figure.floor_tflops, figure.tflops_median
    below_floor, below_peers = floor is not None and tflops < floor, tflops < PEER_RATIO * best
    if not (below_floor or below_peers):
        return None
    told = []
    if floor is not None and below_floor:
        told.append(f"the floor is {floor:.3g}")
    if below_peers:
        told.append(f"the best of its node has {best:.3g}")
    message = f"{figure.device} {figure.dtype}: {tflops:.3g} TFLOPS, {' and '.join(told)}"
    held = load[figure.device].held_by if figure.device in load else ()
    evidence = {
        "device": figure.device,
        "dtype": figure.dtype,
        "tflops": tflops,
        "peers": round(tflops / best, 3) if best > 0 else 0.0,
        **({"floor": floor} if floor is not None else {}),
        **({"heldBy": list(held)} if held else {}),
    }
    cause = (
        "; ".join(CAUSES[reason] for reason in held)
        or "another program on the device, a power limit, or a slow device"
    )
    if floor is not None and below_floor:
        row: GpuFloors | None = floors_for(figure.pci_device_id, figure.name)
        if figure.dtype not in floors and row is not None and figure.dtype in row.warn_only:
            text = f"{message} (no measurement of a {row.name} was published: warning only)"
            return Finding(check="matmul", verdict="warning", message=text, cause=cause, evidence=evidence)
    elif level == "quick":  # too short a run to replace a node for it
        return Finding(check="matmul", verdict="warning", message=message, cause=cause, evidence=evidence)
    return _fail(message, Exit.PERFORMANCE, cause, evidence)


def judge_load(load: Sequence[LoadFigure]) -> list[Finding]:
    """Bits are told one by one: two reasons at once are no third one."""
    findings = []
    for figure in load:
        held = [name for name in figure.held_by if name in HARDWARE]
        if held:
            message = f"GPU {figure.gpu}: hardware held the clock down under load: {', '.join(held)}"
            cause = "heat, a failing power supply or a brake signal from the board"
            findings.append(_fail(message, Exit.DEVICE, cause, {"gpu": figure.gpu, "heldBy": held}))
        elif "sw_thermal" in figure.held_by:
            message = f"GPU {figure.gpu}: software held the clock down for heat under load"
            findings.append(Finding(check="matmul", verdict="warning", message=message))
    return findings


def _fail(message: str, code: Exit, cause: str, evidence: Mapping[str, object]) -> Finding:
    return Finding(
        check="matmul",
        verdict="fail",
        message=message,
        cause=cause,
        action="replace the node",
        evidence=dict(evidence),
        exit_code=code,
    )
