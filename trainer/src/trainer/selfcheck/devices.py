"""Are the GPUs there that the instance type promises, healthy, and usable by this torch?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..contracts.node_document import Promise
from ..devices.nvml import GpuReading, Nvml, NvmlUnavailable
from ..exit_codes import Exit
from .report import Finding

MEMORY_TOLERANCE = 0.15  # NVML's total lacks what the driver and ECC keep
# Recovery action of NVML field 230 -> exit code
ACTIONS = {
    "reset": Exit.RESET,
    "reboot": Exit.REBOOT,
    "drain-p2p": Exit.RESET,
    "drain-and-reset": Exit.RESET,
}


@dataclass(frozen=True)
class TorchDevice:
    device: str  # cpu, cuda:0...
    name: str
    capability: tuple[int, int] | None = None
    uuid: str | None = None  # as NVML's, GPU-...


def check_devices(
    promise: Promise | None, open_nvml: Callable[[], Nvml] = Nvml
) -> tuple[list[Finding], list[GpuReading], str | None]:
    """Findings, readings and the driver's version. Without a promise (no document) what is there is only told."""
    if promise is not None and promise.accelerator == "none":
        message = "does not apply: this image has no accelerator driver; the node trains on its CPU"
        return [Finding(check="devices", verdict="info", message=message)], [], None
    try:
        nvml = open_nvml()
    except NvmlUnavailable as error:
        return [_unavailable(error, promise)], [], None
    try:
        readings, driver = nvml.readings(), nvml.driver_version()
    except NvmlUnavailable as error:
        return [_unavailable(error, promise)], [], None
    finally:
        nvml.close()
    findings = _against_promise(promise, readings) + [f for reading in readings for f in _health(reading)]
    if not findings:
        names = ", ".join(sorted({reading.name for reading in readings}))
        message = f"{len(readings)} x {names}, driver {driver or 'unknown'}"
        findings = [Finding(check="devices", verdict="pass", message=message)]
    return findings, readings, driver


def _unavailable(error: NvmlUnavailable, promise: Promise | None) -> Finding:
    if promise is None and error.library_missing:
        message = "does not apply: there is no NVIDIA driver on this machine; it trains on its CPU"
        return Finding(check="devices", verdict="info", message=message)
    return Finding(
        check="devices",
        verdict="unknown",
        message=f"the GPUs cannot be read: {error}",
        cause="driver not loaded, driver and library of different versions, or device nodes taken away",
        action="compare `modinfo nvidia` with the library's version; reboot the node",
        exit_code=Exit.DRIVER,
    )


def _against_promise(promise: Promise | None, readings: Sequence[GpuReading]) -> list[Finding]:
    if promise is None:
        return []
    type_, count = promise.instance_type, promise.gpu_count
    if len(readings) < count:
        return [
            _bad(
                f"{len(readings)} of the {count} GPUs of {type_} are there", Exit.DEVICE, count=len(readings)
            )
        ]
    findings = []
    if len(readings) > count:
        message = f"{len(readings)} GPUs where {type_} promises {count}"
        findings.append(Finding(check="devices", verdict="warning", message=message))
    for reading in readings:
        where = f"GPU {reading.index}"
        if promise.gpu_model and not reading.lost and not names_match(promise.gpu_model, reading.name):
            message = f'{where} is "{reading.name}", {type_} promises {promise.gpu_model}'
            findings.append(_bad(message, Exit.DEVICE, gpu=reading.index, name=reading.name))
        total, promised = reading.memory_total_bytes, promise.gpu_memory_gib
        if total is not None and promised and abs(total / 2**30 - promised) > MEMORY_TOLERANCE * promised:
            message = f"{where} has {total / 2**30:.1f} GiB, {type_} promises {promised:.1f} GiB"
            findings.append(Finding(check="devices", verdict="warning", message=message))
    return findings


def _health(reading: GpuReading) -> list[Finding]:
    where, gpu = f"GPU {reading.index}", reading.index
    if reading.lost:
        return [
            _bad(f"{where} ({reading.uuid}) is lost", Exit.DEVICE, "it fell off the bus (XID 79)", gpu=gpu)
        ]
    findings = []
    if reading.remap_failed:
        findings.append(_bad(f"{where}: a memory row could not be remapped", Exit.DEVICE, gpu=gpu))
    if reading.ecc_uncorrected:
        count = reading.ecc_uncorrected
        message = f"{where}: {count} uncorrected memory errors since the driver was loaded"
        findings.append(_bad(message, Exit.DEVICE, gpu=gpu, count=count))
    if reading.remap_pending:
        findings.append(_bad(f"{where}: a memory row waits for a reset to be remapped", Exit.RESET, gpu=gpu))
    action = reading.recovery_action
    if action in ACTIONS:
        findings.append(
            _bad(f"{where}: the driver asks for: {action}", ACTIONS[action], gpu=gpu, action=action)
        )
    elif action not in (None, "none"):
        message = f"{where}: the driver asks for an action that is not known: {action}"
        findings.append(Finding(check="devices", verdict="warning", message=message))
    return findings


def _bad(message: str, code: Exit, cause: str = "the device or its slot", **evidence: Any) -> Finding:
    todo = {Exit.RESET: "reset the GPU or reboot", Exit.REBOOT: "reboot the node"}
    return Finding(
        check="devices",
        verdict="fail",
        message=message,
        cause=cause,
        action=todo.get(code, "replace the node"),
        evidence=evidence,
        exit_code=code,
    )


def names_match(promised: str, name: str) -> bool:
    """All words of the promised model occur in the device's name, whatever the case: "L40S" is not "L40"."""
    words = name.lower().replace("-", " ").split()
    return all(word in words for word in promised.lower().replace("-", " ").split())


def torch_devices() -> list[TorchDevice]:
    """What torch can use: its CUDA devices, or the CPU where it has none."""
    import torch

    if not torch.cuda.is_available():
        return [TorchDevice("cpu", f"{torch.get_num_threads()} threads")]
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        uuid = str(getattr(properties, "uuid", "") or "")
        devices.append(
            TorchDevice(
                device=f"cuda:{index}",
                name=properties.name,
                capability=(properties.major, properties.minor),
                uuid=f"GPU-{uuid.removeprefix('GPU-')}" if uuid else None,
            )
        )
    return devices


def check_torch(
    promise: Promise | None, devices: Sequence[TorchDevice], version: str, archs: Sequence[str]
) -> Finding:
    """Can this torch build run on these GPUs? ``archs`` is ``torch.cuda.get_arch_list()``."""
    gpus = [device for device in devices if device.capability is not None]
    if promise is not None and promise.accelerator == "nvidia" and len(gpus) < promise.gpu_count:
        return Finding(
            check="torch",
            verdict="fail",
            message=f"torch {version} sees {len(gpus)} of {promise.gpu_count} GPUs",
            cause="a CPU build of torch, a driver too old for it, or the fabric manager not running (error 802)",
            action="compare the driver's version with what this torch build needs; see nvidia-smi",
            exit_code=Exit.DRIVER,
        )
    if not gpus:
        message = f"torch {version}; kernels for a GPU do not apply on a CPU"
        return Finding(check="torch", verdict="pass", message=message)
    for gpu in gpus:
        if not has_kernels(gpu.capability or (0, 0), archs):
            major, minor = gpu.capability or (0, 0)
            return Finding(
                check="torch",
                verdict="fail",
                message=f"torch {version} has no kernels for {gpu.name} (compute capability {major}.{minor})",
                cause=f"this build was made for {', '.join(archs) or 'no GPU'}",
                action="use an image whose torch was built for this GPU",
                evidence={"archs": list(archs), "capability": f"{major}.{minor}"},
                exit_code=Exit.DRIVER,
            )
    return Finding(
        check="torch", verdict="pass", message=f"torch {version} has kernels for all {len(gpus)} GPUs"
    )


def has_kernels(capability: tuple[int, int], archs: Sequence[str]) -> bool:
    """Binary kernels serve the same major version at an equal or higher minor; PTX (compute_) serves any newer GPU."""
    for arch in archs:
        kind, _, digits = arch.rstrip("abcdefghijklmnopqrstuvwxyz").partition("_")
        if not digits.isdigit():
            continue
        built = (int(digits[:-1]), int(digits[-1]))
        if kind == "sm" and built[0] == capability[0] and built[1] <= capability[1]:
            return True
        if kind == "compute" and built <= capability:
            return True
    return False
