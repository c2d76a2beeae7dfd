"""The matrix benchmark's verdict: exact, repeatable, as fast as its peers and as its kind; and why, where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..devices.floors import floors_for
from ..devices.reading import HARDWARE_REASONS
from ..exit_codes import Exit
from .report import REPLACE, Finding, LoadFigure, MatmulFigure, fail, info, passed, warning

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
        findings = [passed("matmul", text)]
    if measured and all(figure.floor_tflops is None for figure in measured):
        id_ = measured[0].pci_device_id or "unknown"
        where = "a CPU" if measured[0].device == "cpu" else f"PCI device {id_}"
        findings.append(info("matmul", f"floors do not apply: none for {where}"))
    return findings


def _exactness(figure: MatmulFigure) -> Iterator[Finding]:
    where = f"{figure.device} {figure.dtype}"
    evidence = {"device": figure.device, "dtype": figure.dtype, "n": figure.n}
    if figure.error > figure.tolerance:
        message = f"{where}: error {figure.error:.2g} against float64, allowed {figure.tolerance:.2g}"
        yield _wrong(message, "wrong results: faulty arithmetic or memory", **evidence)
    if not figure.repeatable:
        message = f"{where}: the same product gave different bits in {figure.repeats} repeats"
        yield _wrong(message, "silent data corruption", **evidence)
    if not figure.tflops_median > 0:
        yield _wrong(f"{where}: no operation was done", "the device does not compute", **evidence)


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
                findings.append(_wrong(message, "silent data corruption", **evidence))
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
    if below_floor:
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
        "floor": floor,
        "heldBy": list(held) or None,
    }
    other = "another program on the device, a power limit, or a slow device"
    cause = "; ".join(CAUSES[reason] for reason in held) or other
    row = floors_for(figure.pci_device_id, figure.name)
    if below_floor and row is not None and figure.dtype in row.warn_only and figure.dtype not in floors:
        message = f"{message} (no measurement of a {row.name} was published: warning only)"
        return warning("matmul", message, cause, **evidence)
    if not below_floor and level == "quick":  # too short a run to replace a node for it
        return warning("matmul", message, cause, **evidence)
    return fail("matmul", message, cause, REPLACE, Exit.PERFORMANCE, **evidence)


def judge_load(load: Sequence[LoadFigure]) -> list[Finding]:
    """Bits are told one by one: two reasons at once are no third one."""
    findings = []
    for figure in load:
        if held := [name for name in figure.held_by if name in HARDWARE]:
            message = f"GPU {figure.gpu}: hardware held the clock down under load: {', '.join(held)}"
            cause = "heat, a failing power supply or a brake signal from the board"
            findings.append(_wrong(message, cause, gpu=figure.gpu, heldBy=held))
        elif "sw_thermal" in figure.held_by:
            message = f"GPU {figure.gpu}: software held the clock down for heat under load"
            findings.append(warning("matmul", message))
    return findings


def _wrong(message: str, cause: str, **evidence: Any) -> Finding:
    return fail("matmul", message, cause, REPLACE, Exit.DEVICE, **evidence)
