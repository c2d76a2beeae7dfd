"""All checks in order, cheap ones first; a check that cannot look says so and the others go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

from .. import __version__
from ..contracts.node_document import NodeDocument, Promise
from ..devices.nvml import Nvml, NvmlUnavailable
from ..devices.sampler import Sampler
from ..errors import Fault
from ..exit_codes import Exit
from .bandwidth import judge_allreduce, judge_memory
from .devices import Devices, check_devices
from .driver import check_container, check_driver
from .fabric import WAIT_SECONDS, check_fabric, has_nvswitch
from .health import check_health, check_nvlink, check_pcie
from .host import check_clock, check_disk, check_scratch
from .matmul import judge, judge_load
from .report import (
    PASSING,
    REPLACE,
    AllReduceFigure,
    Finding,
    LoadFigure,
    MatmulFigure,
    MemoryFigure,
    SelfCheckReport,
    conclude,
    fail,
    info,
)
from .shared_memory import check_leftovers, check_shared_memory, remove_leftovers
from .torch_build import TorchDevice, check_build, check_cuda, torch_build, torch_devices
from .view import Host
from .xids import check_xids

Level = Literal["quick", "full"]
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

Tell = Callable[[str], object]  # what is looked at now


@dataclass
class _Check:
    """What the steps leave for each other."""

    document: NodeDocument | None
    level: Level
    host: Host
    open_nvml: Callable[[], Nvml]
    tell: Tell
    findings: list[Finding] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=lambda: {"trainer": __version__})
    nvml: Devices = field(default_factory=Devices)
    devices: list[TorchDevice] = field(default_factory=list)
    matmul: list[MatmulFigure] = field(default_factory=list)
    load: list[LoadFigure] = field(default_factory=list)
    memory: list[MemoryFigure] = field(default_factory=list)
    allreduce: list[AllReduceFigure] = field(default_factory=list)

    @property
    def promise(self) -> Promise | None:
        return self.document.promise if self.document else None

    @property
    def gpus_promised(self) -> bool:
        return self.promise is not None and self.promise.accelerator == "nvidia"

    @property
    def bad(self) -> bool:
        return any(finding.verdict not in PASSING for finding in self.findings)

    def add(self, *findings: Finding | None) -> None:
        self.findings += [finding for finding in findings if finding is not None]


def run_selfcheck(
    document: NodeDocument | None,
    level: Level,
    state_dir: Path,
    instance_id: str | None = None,
    open_nvml: Callable[[], Nvml] = Nvml,
    host: Host | None = None,
    tell: Tell = lambda _: None,
) -> SelfCheckReport:
    began, started_at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    check = _Check(document, level, host or Host(), open_nvml, tell)
    tell("looking at: driver and devices")
    _look_at_devices(check)
    tell("looking at: torch and CUDA")
    _look_at_torch(check)
    tell("looking at: health of the devices")
    _look_at_health(check)
    tell("looking at: shared memory, disks, clock")
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
    check.add(check_driver(check.promise, check.host))
    findings, check.nvml = check_devices(check.promise, check.host, check.open_nvml)
    check.add(*findings)
    if check.nvml.driver:
        check.versions["driver"] = check.nvml.driver


def _look_at_torch(check: _Check) -> None:
    """The build first, then the fabric manager, then CUDA: it keeps a failed start for the rest of the process."""
    promise, host, nvml = check.promise, check.host, check.nvml
    try:
        build = torch_build()
    except Exception as error:  # torch fails in many ways where libraries are missing
        check.add(_torch_missing(error))
        return
    check.versions["torch"] = build.version
    if build.cuda:
        check.versions["cuda"] = build.cuda
    check.add(check_build(promise, build, nvml.readings, nvml.driver))
    if check.gpus_promised or has_nvswitch(promise, host):
        wait = 0.0 if check.bad else WAIT_SECONDS  # without a driver it never comes
        check.add(check_fabric(promise, host, partial(_fabric_states, check.open_nvml), nvml.driver, wait))
    check.add(check_container(promise, host))
    if not check.bad:
        check.devices, fault = torch_devices()
        check.add(check_cuda(promise, check.devices, host, fault, nvml.readings))


def _look_at_health(check: _Check) -> None:
    readings, health = check.nvml.readings, check.nvml.health
    check.add(*check_health(readings, health))
    if readings or check.gpus_promised:  # the kernel may say why NVML tells of none
        check.add(*check_xids(readings, check.host))
    check.add(*check_nvlink(readings, health))


def _look_at_host(check: _Check, state_dir: Path) -> None:
    document, host = check.document, check.host
    processes = max(len(check.devices), check.promise.gpu_count if check.promise else 0)
    check.add(*check_leftovers(remove_leftovers()))
    check.add(check_shared_memory(processes, host))
    check.add(check_disk(str(state_dir), host))
    check.add(check_scratch(document.scratch if document else None, host))
    check.add(check_clock(_endpoint(document, host), host))


def _measure(check: _Check) -> None:
    if not check.devices or check.bad:
        check.add(info("matmul", "not measured: a check before it failed"))
        return
    steps = [("matmul", _measure_matmul), ("memory", _measure_memory)]
    if check.level == "full":
        steps.append(("allreduce", _measure_allreduce))
    for name, step in steps:
        check.tell(f"measuring: {name}")
        try:
            step(check)
        except (Fault, RuntimeError) as error:  # torch's own: out of memory, device-side assertion
            check.add(_broke(name, error))
            return  # CUDA keeps a fault for the rest of the process


def _twice(measure: Callable[[], list[Finding]], tell: Tell) -> list[Finding]:
    """Once more where something was too slow: a node is not given away for one slow run."""
    found = measure()
    if not any(finding.exit_code == Exit.PERFORMANCE for finding in found):
        return found
    tell("too slow: measuring it once more")
    return measure()


def _measure_matmul(check: _Check) -> None:
    from ..bench.figures import choose_dtypes, load_by_device, load_figures, matmul_figures
    from ..bench.matmul import measure

    devices, readings = check.devices, check.nvml.readings
    floors = check.document.self_check.floors_tflops if check.document else {}
    on_gpu = devices[0].device != "cpu"
    dtypes = choose_dtypes(devices[0], None)
    if on_gpu and check.level == "quick":
        dtypes = ["fp32", "bf16" if "bf16" in dtypes else "fp16"]
    seconds = MATMUL_SECONDS[check.level, "cuda" if on_gpu else "cpu"]
    warm_up = WARM_UP_SECONDS[check.level] if on_gpu else 0.0
    seen: dict[int, tuple[int, int]] = {}

    def once() -> list[Finding]:
        with Sampler(check.open_nvml if readings else None) as sampler:
            measured = measure([device.device for device in devices], dtypes, seconds, warm_up)
        seen.update({gpu: load.pcie for gpu, load in sampler.loads.items() if load.pcie is not None})
        check.matmul = matmul_figures(measured, devices, readings, floors)
        check.load = load_figures(sampler.loads)
        by_device = load_by_device(check.load, devices, readings)
        return judge(check.matmul, floors, check.level, by_device) + judge_load(check.load)

    check.add(*_twice(once, check.tell))
    check.add(*check_pcie(readings, check.nvml.health, seen))


def _measure_memory(check: _Check) -> None:
    from ..bench.figures import memory_figures
    from ..bench.memory import LEAST_BYTES_CPU, measure_memory

    devices = [device.device for device in check.devices]
    small = LEAST_BYTES_CPU if devices[0] == "cpu" and check.level == "quick" else None

    def once() -> list[Finding]:
        measured = measure_memory(devices, MEMORY_SECONDS[check.level], small)
        check.memory = memory_figures(measured, check.devices, check.nvml.readings)
        return judge_memory(check.memory)

    check.add(*_twice(once, check.tell))


def _measure_allreduce(check: _Check) -> None:
    from ..bench.allreduce import default_sizes, measure_allreduce
    from ..bench.figures import allreduce_figures
    from ..bench.network import efa_gigabytes_per_second

    devices, nics = [device.device for device in check.devices], efa_gigabytes_per_second()
    if devices[0] != "cpu" and len(devices) < 2:
        check.add(info("allreduce", "does not apply: there is one GPU"))
        return

    def once() -> list[Finding]:
        measured = measure_allreduce(devices, default_sizes(devices[0]), ALLREDUCE_SECONDS)
        check.allreduce = allreduce_figures(measured, check.devices, check.nvml.readings, nics)
        return judge_allreduce(
            check.allreduce, measured.nccl, check.promise.efa_count if check.promise else 0
        )

    check.add(*_twice(once, check.tell))


def _fabric_states(open_nvml: Callable[[], Nvml]) -> list[str | None]:
    try:
        with open_nvml() as nvml:
            return nvml.fabric_states()
    except NvmlUnavailable:
        return []


def _endpoint(document: NodeDocument | None, host: Host) -> str | None:
    given = host.environment.get("AWS_ENDPOINT_URL_S3") or host.environment.get("AWS_ENDPOINT_URL")
    if given:
        return given
    return f"https://s3.{document.region}.amazonaws.com/" if document else None


def _torch_missing(error: Exception) -> Finding:
    cause = "the image has no torch where its profile says, or a library it needs is missing"
    todo = "compare the image profile's torch path with the image"
    return fail("torch", f"torch cannot be imported: {_line(error)}", cause, todo, Exit.DRIVER)


def _broke(check: str, error: Exception) -> Finding:
    code = error.exit_code if isinstance(error, Fault) else Exit.DEVICE
    message = f"the benchmark broke off: {_line(error)[:300]}"
    if code == Exit.DEVICE:
        return fail(check, message, "the device, its memory or its driver", REPLACE, code)
    cause = "the devices cannot be connected: a link, NCCL's or gloo's libraries, or /dev/shm"
    todo = f"run trainer bench {check} on the node; replace the node if another one passes"
    return fail(check, message, cause, todo, code)


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
