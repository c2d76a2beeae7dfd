"""The matrix benchmark's verdict: exact, repeatable, as fast as its peers and as its kind."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from ..bench.matmul import applicable_dtypes, measure
from ..devices.floors import GpuFloors, floors_for
from ..devices.reading import HARDWARE_REASONS, GpuReading
from ..exit_codes import Exit
from .devices import TorchDevice
from .report import Finding, MatmulFigure

PEER_RATIO = 0.9  # of the best GPU in the node
SAMPLE_SECONDS = 0.2

Readings = Callable[[], Sequence[GpuReading]]


def figures(
    devices: Sequence[TorchDevice],
    budget_seconds: float,
    dtypes: Sequence[str] | None,
    floors: Mapping[str, float] | None,
    readings: Sequence[GpuReading] = (),
) -> list[MatmulFigure]:
    """Measure; ``dtypes`` None: all that apply. ``floors`` (dtype -> TFLOPS) go before the table of the GPU."""
    chosen = [
        d for d in applicable_dtypes(devices[0].device, devices[0].capability) if not dtypes or d in dtypes
    ]
    by_uuid = {reading.uuid: reading for reading in readings}
    by_device = {device.device: device for device in devices}
    result = []
    for measured in measure([device.device for device in devices], chosen, budget_seconds):
        device = by_device[measured.device]
        reading = by_uuid.get(device.uuid or "")
        row = floors_for(reading.pci_device_id if reading else None)
        floor = (floors or {}).get(measured.dtype, row.floor.get(measured.dtype) if row else None)
        result.append(
            MatmulFigure(
                device=measured.device,
                name=device.name,
                pci_device_id=reading.pci_device_id if reading else None,
                dtype=measured.dtype,
                n=measured.n,
                repeats=len(measured.seconds),
                tflops_median=measured.tflops_median,
                tflops_min=measured.tflops(max(measured.seconds)),
                tflops_max=measured.tflops(min(measured.seconds)),
                spread_ratio=measured.spread_ratio,
                error=min(measured.error, 1e308) if measured.finite else 1e308,  # JSON knows no infinity
                tolerance=measured.tolerance,
                repeatable=measured.repeatable,
                floor_tflops=floor,
            )
        )
    return result


def judge(measured: Sequence[MatmulFigure], floors: Mapping[str, float], level: str) -> list[Finding]:
    """Numbers first, then speed. A GPU without a published floor is told so and does not fail for it."""
    findings = [finding for figure in measured for finding in _exactness(figure)]
    findings += [finding for figure in measured if (finding := _speed(figure, floors))]
    findings += _peers(measured, level)
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


def _speed(figure: MatmulFigure, floors: Mapping[str, float]) -> Finding | None:
    floor = figure.floor_tflops
    if floor is None or figure.tflops_median >= floor:
        return None
    where = f"{figure.device} {figure.dtype}"
    message = f"{where}: {figure.tflops_median:.3g} TFLOPS, the floor is {floor:.3g}"
    row: GpuFloors | None = floors_for(figure.pci_device_id)
    if figure.dtype not in floors and row is not None and figure.dtype in row.warn_only:
        text = f"{message} (no measurement of a {row.name} was published: warning only)"
        return Finding(check="matmul", verdict="warning", message=text)
    evidence = {
        "device": figure.device,
        "dtype": figure.dtype,
        "tflops": figure.tflops_median,
        "floor": floor,
    }
    return _fail(
        message, Exit.PERFORMANCE, "a slow device, heat, a power limit, or another program on it", evidence
    )


def _peers(measured: Sequence[MatmulFigure], level: str) -> list[Finding]:
    findings = []
    for dtype in sorted({figure.dtype for figure in measured}):
        peers = [figure for figure in measured if figure.dtype == dtype]
        best = max(peer.tflops_median for peer in peers)
        for peer in peers:
            if peer.tflops_median >= PEER_RATIO * best:
                continue
            message = (
                f"{peer.device} {dtype}: {peer.tflops_median:.3g} TFLOPS, the best of its node has {best:.3g}"
            )
            if level == "quick":  # too short a run to replace a node for it
                findings.append(Finding(check="matmul", verdict="warning", message=message))
            else:
                evidence = {
                    "device": peer.device,
                    "dtype": dtype,
                    "ratio": round(peer.tflops_median / best, 3),
                }
                findings.append(_fail(message, Exit.PERFORMANCE, "a slow or throttled device", evidence))
    return findings


def judge_clocks(reasons: Mapping[int, int]) -> list[Finding]:
    """``reasons``: GPU index -> all clock-event bits seen under load. Bits are tested one by one."""
    findings = []
    for gpu, mask in sorted(reasons.items()):
        held = [name for bit, name in HARDWARE_REASONS.items() if mask & bit]
        if held:
            message = f"GPU {gpu}: hardware held the clock down under load: {', '.join(held)}"
            cause = "heat, a failing power supply or a brake signal from the board"
            findings.append(_fail(message, Exit.DEVICE, cause, {"gpu": gpu, "mask": hex(mask)}))
        elif mask & 0x20:
            message = f"GPU {gpu}: software held the clock down for heat under load"
            findings.append(Finding(check="matmul", verdict="warning", message=message))
    return findings


class ClockSampler:
    """Collects the clock-event bits of all GPUs while the benchmark runs."""

    def __init__(self, read: Readings | None) -> None:
        self.reasons: dict[int, int] = {}
        self._read = read
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name="clock-sampler")

    def __enter__(self) -> ClockSampler:
        if self._read is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._read is not None:
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS) and self._read is not None:
            for reading in self._read():
                if reading.clock_reasons is not None:
                    self.reasons[reading.index] = self.reasons.get(reading.index, 0) | reading.clock_reasons


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
