"""All checks in order, cheap ones first; a check that cannot look says so and the others go on."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from .. import __version__
from ..contracts.node_document import NodeDocument
from ..devices.nvml import GpuReading, Nvml, NvmlUnavailable
from ..exit_codes import Exit
from .devices import TorchDevice, check_devices, check_torch, torch_devices
from .host import check_clock, check_disk, check_shared_memory
from .matmul import ClockSampler, Readings, figures, judge, judge_clocks
from .report import Finding, MatmulFigure, SelfCheckReport, conclude

Level = Literal["quick", "full"]
# Seconds a dtype; a GPU's verdict at full level is taken hot, after a warm-up whose figures are thrown away.
BUDGET_SECONDS: dict[tuple[str, str], float] = {
    ("quick", "cpu"): 0.4,
    ("quick", "cuda"): 2.0,
    ("full", "cpu"): 3.0,
    ("full", "cuda"): 10.0,
}
WARM_UP_SECONDS = 30.0


def run_selfcheck(
    document: NodeDocument | None,
    level: Level,
    state_dir: Path,
    instance_id: str | None = None,
    open_nvml: Callable[[], Nvml] = Nvml,
) -> SelfCheckReport:
    began, started_at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    promise = document.promise if document else None
    versions = {"trainer": __version__}
    findings, readings, driver = check_devices(promise, open_nvml)
    if driver:
        versions["driver"] = driver
    devices: list[TorchDevice] = []
    measured: list[MatmulFigure] = []
    try:
        import torch
    except Exception as error:  # torch fails in many ways where libraries are missing
        findings.append(_torch_missing(error))
    else:
        versions["torch"] = torch.__version__
        if torch.version.cuda:
            versions["cuda"] = torch.version.cuda
        devices = torch_devices()
        findings.append(check_torch(promise, devices, torch.__version__, torch.cuda.get_arch_list()))
    findings.append(check_shared_memory(len(devices)))
    findings.append(check_disk(state_dir))
    findings.append(check_clock(_endpoint(document)))
    if devices and not any(finding.verdict in ("fail", "unknown") for finding in findings):
        overrides = document.self_check.floors_tflops if document else {}
        sampler = ClockSampler(_reader(open_nvml) if readings else None)
        try:
            with sampler:
                measured = _measure(devices, level, overrides, readings)
            findings += judge(measured, overrides, level) + judge_clocks(sampler.reasons)
        except RuntimeError as error:  # torch's own: out of memory, no kernel image, device-side assertion
            findings.append(_benchmark_broke(error))
    else:
        message = "not measured: a check before it failed"
        findings.append(Finding(check="matmul", verdict="info", message=message))
    return conclude(
        findings,
        measured,
        level=level,
        seconds=time.monotonic() - began,
        started_at=started_at,
        versions=versions,
        instance_id=instance_id,
    )


def _measure(
    devices: list[TorchDevice], level: Level, overrides: dict[str, float], readings: Sequence[GpuReading]
) -> list[MatmulFigure]:
    kind = "cpu" if devices[0].device == "cpu" else "cuda"
    budget = BUDGET_SECONDS[level, kind]
    if kind == "cpu":
        return figures(devices, budget, None, overrides, readings)
    half = "bf16" if (devices[0].capability or (0, 0)) >= (8, 0) else "fp16"
    if level == "quick":
        return figures(devices, budget, ["fp32", half], overrides, readings)
    figures(devices, WARM_UP_SECONDS, [half], overrides, readings)
    return figures(devices, budget, None, overrides, readings)


def _reader(open_nvml: Callable[[], Nvml]) -> Readings:
    nvml = open_nvml()

    def read() -> Sequence[GpuReading]:
        try:
            return nvml.readings()
        except NvmlUnavailable:
            return []

    return read


def _endpoint(document: NodeDocument | None) -> str | None:
    given = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if given:
        return given
    return f"https://s3.{document.region}.amazonaws.com/" if document else None


def _torch_missing(error: Exception) -> Finding:
    return Finding(
        check="torch",
        verdict="fail",
        message=f"torch cannot be imported: {' '.join(str(error).split())}",
        cause="the image has no torch where its profile says, or a library it needs is missing",
        action="compare the image profile's torch path with the image",
        exit_code=Exit.DRIVER,
    )


def _benchmark_broke(error: Exception) -> Finding:
    return Finding(
        check="matmul",
        verdict="fail",
        message=f"the benchmark broke off: {' '.join(str(error).split())[:300]}",
        cause="the device, its memory or its driver",
        action="replace the node",
        exit_code=Exit.DEVICE,
    )
