"""All checks in order, cheap ones first; a check that cannot look says so and the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from .. import __version__
from ..contracts.node_document import NodeDocument
from ..devices.nvml import Nvml, NvmlUnavailable
from ..devices.sampler import Sampler
from ..exit_codes import Exit
from .bandwidth import judge_allreduce, judge_memory
from .devices import Devices, check_devices
from .driver import check_container, check_driver
from .fabric import WAIT_SECONDS, check_fabric, has_nvswitch
from .health import check_health, check_nvlink, check_pcie
from .host import check_clock, check_disk, check_scratch
from .matmul import judge, judge_load
from .report import (
    AllReduceFigure,
    Finding,
    LoadFigure,
    MatmulFigure,
    MemoryFigure,
    SelfCheckReport,
    Verdict,
    conclude,
)
from .shared_memory import check_leftovers, check_shared_memory, remove_leftovers
from .torch_build import TorchDevice, check_build, check_cuda, torch_build, torch_devices
from .view import Host
from .xids import check_xids

Level = Literal["quick", "full"]
BAD: frozenset[Verdict] = frozenset({"fail", "unknown"})
# Seconds a dtype; a GPU's verdict at full level is taken hot, after a warm-up whose figures are thrown away.
MATMUL_SECONDS: dict[tuple[str, str], float] = {
    ("quick", "cpu"): 0.4,
    ("quick", "cuda"): 2.0,
    ("full", "cpu"): 3.0,
    ("full", "cuda"): 8.0,
}
WARM_UP_SECONDS = {"quick": 0.0, "full": 30.0}  # on GPUs
MEMORY_SECONDS = {"quick": 0.3, "full": 2.0}
ALLREDUCE_SECONDS = 1.0  # a message size; at full level only, since it starts a process a device


@dataclass
class _Check:
    """What the steps leave for each other."""

    document: NodeDocument | None
    level: Level
    host: Host
    open_nvml: Callable[[], Nvml]
    findings: list[Finding] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=lambda: {"trainer": __version__})
    nvml: Devices = field(default_factory=Devices)
    devices: list[TorchDevice] = field(default_factory=list)
    matmul: list[MatmulFigure] = field(default_factory=list)
    load: list[LoadFigure] = field(default_factory=list)
    memory: list[MemoryFigure] = field(default_factory=list)
    allreduce: list[AllReduceFigure] = field(default_factory=list)

    @property
    def bad(self) -> bool:
        return any(finding.verdict in BAD for finding in self.findings)

    def add(self, *findings: Finding | None) -> None:
        self.findings += [finding for finding in findings if finding is not None]


def run_selfcheck(
    document: NodeDocument | None,
    level: Level,
    state_dir: Path,
    instance_id: str | None = None,
    open_nvml: Callable[[], Nvml] = Nvml,
    host: Host | None = None,
) -> SelfCheckReport:
    began, started_at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    check = _Check(document, level, host or Host(), open_nvml)
    _look_at_devices(check)
    _look_at_torch(check)
    _look_at_health(check)
    _look_at_host(check, state_dir)
    _measure(check)
    return conclude(
        check.findings,
        check.matmul,
        level=level,
        seconds=time.monotonic() - began,
        started_at=started_at,
        versions=check.versions,
        instance_id=instance_id,
        load=check.load,
        memory=check.memory,
        allreduce=check.allreduce,
    )


def _look_at_devices(check: _Check) -> None:
    promise = check.document.promise if check.document else None
    check.add(check_driver(promise, check.host))
    findings, check.nvml = check_devices(promise, check.host, check.open_nvml)
    check.add(*findings)
    if check.nvml.driver:
        check.versions["driver"] = check.nvml.driver


def _look_at_torch(check: _Check) -> None:
    """The build first, then the fabric manager, then CUDA: it keeps a failed start for the rest of the process."""
    promise = check.document.promise if check.document else None
    try:
        build = torch_build()
    except Exception as error:  # torch fails in many ways where libraries are missing
        check.add(_torch_missing(error))
        return
    check.versions["torch"] = build.version
    if build.cuda:
        check.versions["cuda"] = build.cuda
    check.add(check_build(promise, build, check.nvml.readings, check.nvml.driver))
    if (promise is not None and promise.accelerator == "nvidia") or has_nvswitch(promise, check.host):
        wait = 0.0 if check.bad else WAIT_SECONDS  # without a driver it never comes
        states = partial(_fabric_states, check.open_nvml)
        check.add(check_fabric(promise, check.host, states, check.nvml.driver, wait))
    check.add(check_container(promise, check.host))
    if not check.bad:
        check.devices, fault = torch_devices()
        check.add(check_cuda(promise, check.devices, check.host, fault))


def _look_at_health(check: _Check) -> None:
    readings, health = check.nvml.readings, check.nvml.health
    check.add(*check_health(readings, health))
    if readings:
        check.add(*check_xids(readings, check.host))
    check.add(*check_nvlink(readings, health))


def _look_at_host(check: _Check, state_dir: Path) -> None:
    document, host = check.document, check.host
    processes = max(len(check.devices), document.promise.gpu_count if document else 0)
    check.add(*check_leftovers(remove_leftovers()))
    check.add(check_shared_memory(processes, host))
    check.add(check_disk(str(state_dir), host))
    check.add(check_scratch(document.scratch if document else None, host))
    check.add(check_clock(_endpoint(document, host), host))


def _measure(check: _Check) -> None:
    if not check.devices or check.bad:
        check.add(Finding(check="matmul", verdict="info", message="not measured: a check before it failed"))
        return
    try:
        _measure_matmul(check)
        _measure_memory(check)
        if check.level == "full":
            _measure_allreduce(check)
    except RuntimeError as error:  # torch's own: out of memory, no kernel image, device-side assertion
        check.add(_benchmark_broke(error))


def _measure_matmul(check: _Check) -> None:
    from ..bench.figures import choose_dtypes, load_by_device, load_figures, matmul_figures
    from ..bench.matmul import measure

    devices, readings = check.devices, check.nvml.readings
    floors = check.document.self_check.floors_tflops if check.document else {}
    kind = "cpu" if devices[0].device == "cpu" else "cuda"
    dtypes = choose_dtypes(devices[0], None)
    if kind == "cuda" and check.level == "quick":
        dtypes = ["fp32", "bf16" if "bf16" in dtypes else "fp16"]
    warm_up = WARM_UP_SECONDS[check.level] if kind == "cuda" else 0.0
    for repeat in (False, True):
        with Sampler(check.open_nvml if readings else None) as sampler:
            measured = measure(
                [device.device for device in devices], dtypes, MATMUL_SECONDS[check.level, kind], warm_up
            )
        check.matmul = matmul_figures(measured, devices, readings, floors)
        check.load = load_figures(sampler.loads)
        by_device = load_by_device(check.load, devices, readings)
        found = judge(check.matmul, floors, check.level, by_device) + judge_load(check.load)
        # A node is not given away for one slow run.
        if repeat or not any(finding.exit_code == Exit.PERFORMANCE for finding in found):
            break
    check.add(*found)
    seen = {gpu: load.pcie for gpu, load in sampler.loads.items() if load.pcie is not None}
    check.add(*check_pcie(readings, check.nvml.health, seen))


def _measure_memory(check: _Check) -> None:
    from ..bench.figures import memory_figures
    from ..bench.memory import LEAST_BYTES_CPU, measure_memory

    devices = [device.device for device in check.devices]
    small = LEAST_BYTES_CPU if devices[0] == "cpu" and check.level == "quick" else None
    measured = measure_memory(devices, MEMORY_SECONDS[check.level], small)
    check.memory = memory_figures(measured, check.devices, check.nvml.readings)
    check.add(*judge_memory(check.memory))


def _measure_allreduce(check: _Check) -> None:
    from ..bench.allreduce import AllReduceFailed, default_sizes, measure_allreduce
    from ..bench.figures import allreduce_figures
    from ..bench.network import efa_gigabytes_per_second

    devices = [device.device for device in check.devices]
    if devices[0] != "cpu" and len(devices) < 2:
        check.add(Finding(check="allreduce", verdict="info", message="does not apply: there is one GPU"))
        return
    try:
        measured = measure_allreduce(devices, default_sizes(devices[0]), ALLREDUCE_SECONDS)
    except AllReduceFailed as error:
        check.add(_allreduce_broke(error))
        return
    efa = efa_gigabytes_per_second()
    check.allreduce = allreduce_figures(measured, check.devices, check.nvml.readings, efa[1] if efa else None)
    promised = check.document.promise.efa_count if check.document else 0
    check.add(*judge_allreduce(check.allreduce, measured.nccl, promised))


def _fabric_states(open_nvml: Callable[[], Nvml]) -> list[str | None]:
    try:
        nvml = open_nvml()
    except NvmlUnavailable:
        return []
    try:
        return [seldom.fabric_state for seldom in nvml.health()]
    except NvmlUnavailable:
        return []
    finally:
        nvml.close()


def _endpoint(document: NodeDocument | None, host: Host) -> str | None:
    given = host.environment.get("AWS_ENDPOINT_URL_S3") or host.environment.get("AWS_ENDPOINT_URL")
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


def _allreduce_broke(error: Exception) -> Finding:
    return Finding(
        check="allreduce",
        verdict="fail",
        message=f"the all-reduce broke off: {error}",
        cause="NCCL or gloo cannot connect the devices: a link, its libraries or /dev/shm",
        action="run trainer bench allreduce on the node and read what it says; replace the node if another one passes",
        exit_code=Exit.DRIVER,
    )
