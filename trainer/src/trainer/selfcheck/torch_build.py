"""Is this torch build made for these GPUs and this driver? Asked without starting CUDA, then by starting it.

CUDA keeps a failed start for the rest of a process, so it is started only after the fabric manager was waited for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..contracts.node_document import Promise
from ..devices.reading import GpuReading
from ..devices.visible import visible_uuids
from ..exit_codes import Exit
from .driver import mismatch
from .report import Finding, fail, info, passed
from .view import Host

# Least driver by the wheel's CUDA version: NVIDIA's CUDA compatibility tables; within 12.x by minor-version
# compatibility.
LEAST_DRIVER = {13: 580, 12: 525, 11: 450}
UNATTENDED = "reboot, and switch off unattended upgrades in the image"
# CUDA's error number -> (cause, action)
CUDA_ERRORS = {
    802: (
        "the fabric manager is not running or not ready (machines with NVSwitches)",
        "see systemctl status nvidia-fabricmanager; its version must be the driver's",
    ),
    803: ("the driver's kernel module and its libraries are of different versions", UNATTENDED),
    804: (
        "CUDA's forward compatibility libraries on a GPU or driver that does not take them",
        "take the cuda-compat folder out of LD_LIBRARY_PATH, or use an image with a newer driver",
    ),
    35: (
        "the driver is older than this CUDA needs",
        "use an image with a newer driver, or torch for an older CUDA",
    ),
    999: ("the device nodes were taken away or the driver is broken", "reboot the node"),
}


@dataclass(frozen=True)
class TorchDevice:
    device: str  # cpu, cuda:0...
    name: str
    capability: tuple[int, int] | None = None
    uuid: str | None = None  # as NVML's, GPU-... or MIG-...


@dataclass(frozen=True)
class TorchBuild:
    """What torch was made for."""

    version: str
    cuda: str | None = None  # None: a CPU build
    archs: tuple[str, ...] = ()  # sm_90, compute_90...


def torch_build() -> TorchBuild:
    """Of the installed torch; imports it, and does not start CUDA (as ``torch.cuda.get_arch_list`` does)."""
    import torch

    flags: Any = getattr(torch._C, "_cuda_getArchFlags", lambda: None)()
    return TorchBuild(torch.__version__, torch.version.cuda, tuple((flags or "").split()))


def check_build(
    promise: Promise | None, build: TorchBuild, readings: Sequence[GpuReading], driver: str | None
) -> Finding:
    """Driver and compute capability against the build; the wheel to use is named."""
    if not readings and promise is not None and promise.accelerator == "nvidia":
        return info("torch", f"torch {build.version}, not compared with the GPUs: NVML tells of none")
    if not readings or (promise is not None and promise.accelerator == "none"):
        return passed("torch", f"torch {build.version}; kernels for a GPU do not apply on a CPU")
    if build.cuda is None:
        message = f"torch {build.version} is a CPU build on a machine with {len(readings)} GPUs"
        todo = f"install {wheel_for(readings[0].compute_capability)}"
        return fail("torch", message, "the wheel was taken from the CPU index", todo, Exit.DRIVER)
    least = LEAST_DRIVER.get(int(build.cuda.split(".")[0]))
    if driver and least and int(driver.split(".")[0]) < least:
        return fail(
            "torch",
            f"torch {build.version} is of CUDA {build.cuda} and needs driver {least}; the driver is {driver}",
            "the image's driver is older than its torch",
            "use an image with a newer driver, or torch for an older CUDA",
            Exit.DRIVER,
            driver=driver,
        )
    for reading in readings:
        capability = reading.compute_capability
        if capability is not None and not has_kernels(capability, build.archs):
            told = f"{capability[0]}.{capability[1]}"
            return fail(
                "torch",
                f"torch {build.version} has no kernels for {reading.name} (compute capability {told})",
                f"this build was made for {', '.join(build.archs) or 'no GPU'}",
                f"use an image with {wheel_for(capability)}",
                Exit.DRIVER,
                archs=list(build.archs),
                capability=told,
            )
    message = f"torch {build.version} for CUDA {build.cuda} has kernels for all {len(readings)} GPUs"
    return passed("torch", message)


def check_cuda(
    promise: Promise | None,
    devices: Sequence[TorchDevice],
    host: Host,
    fault: str | None,
    readings: Sequence[GpuReading] = (),
) -> Finding | None:
    """Does torch see the GPUs that are promised, or without a promise those that NVML tells of?

    ``fault``: what CUDA said when it was started.
    """
    if promise is not None and promise.accelerator == "none":
        return None
    seen = sum(device.capability is not None for device in devices)
    wanted = promise.gpu_count if promise is not None else cuda_count(readings, host.environment)
    if seen >= wanted:
        return None
    number = cuda_error(fault or "")
    cause, todo = CUDA_ERRORS.get(
        number or 0,
        ("CUDA_VISIBLE_DEVICES hides some, or a GPU is broken", "compare nvidia-smi -L with the environment"),
    )
    if number == 803:
        cause += f" ({mismatch(host)})"
    told = f": {' '.join(fault.split())[:200]}" if fault else ""
    message = f"torch sees {seen} of {wanted} GPUs{told}"
    return fail("torch", message, cause, todo, Exit.DRIVER, seen=seen, promised=wanted, cudaError=number)


def cuda_count(readings: Sequence[GpuReading], environment: Mapping[str, str]) -> int:
    """How many GPUs CUDA must find at least; of parts in MIG mode it shows one."""
    visible = visible_uuids(readings, environment)
    most = 1 if visible is None or any(reading.mig for reading in readings) else len(readings)
    return min(most, len(readings) if visible is None else len(visible))


def cuda_error(text: str) -> int | None:
    """The number in "Error 802: system not yet initialized", as torch passes it on; None: there is none."""
    match = re.search(r"\b[Ee]rror (\d+):", text)
    return int(match[1]) if match else None


def torch_devices() -> tuple[list[TorchDevice], str | None]:
    """What torch can use, its CUDA devices or else the CPU, and what CUDA said where it did not start."""
    import warnings

    import torch

    fault = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same words as the exception's
        if torch.version.cuda:
            try:
                torch.cuda.init()
            except (RuntimeError, AssertionError) as error:
                fault = str(error)
        available = fault is None and torch.cuda.is_available()
    if not available:
        return [TorchDevice("cpu", f"{torch.get_num_threads()} threads")], fault
    devices = []
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        devices.append(
            TorchDevice(
                device=f"cuda:{index}",
                name=properties.name,
                capability=(properties.major, properties.minor),
                uuid=nvml_uuid(str(getattr(properties, "uuid", "") or "")),
            )
        )
    return devices, None


def nvml_uuid(uuid: str) -> str | None:
    """torch leaves the prefix away that NVML writes."""
    if not uuid:
        return None
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def has_kernels(capability: tuple[int, int], archs: Sequence[str]) -> bool:
    """Binary kernels serve the same major version at an equal or higher minor; PTX (compute_) serves any newer GPU.

    Kernels of an architecture with an "a" (sm_90a) serve that very GPU only, with an "f" the family as without.
    """
    for kind, major, minor, variant in re.findall(r"\b(sm|compute)_(\d+)(\d)([a-z]?)\b", " ".join(archs)):
        built = (int(major), int(minor))
        if variant == "a":
            serves = kind == "sm" and built == capability
        elif kind == "sm":
            serves = built[0] == capability[0] and built <= capability
        else:
            serves = built <= capability
        if serves:
            return True
    return False


def wheel_for(capability: tuple[int, int] | None) -> str:
    """The torch wheel for a GPU, in words (pytorch 172352, unsloth PR 5876; as of 2026-11-30)."""
    if capability is None:
        return "a CUDA wheel of torch"
    if capability < (7, 5):
        return "a cu126 wheel of torch, or torch up to 2.10 of cu128: later ones have no kernels before 7.5"
    if capability >= (10, 0):
        return "a cu128 or newer wheel of torch: older ones have no kernels for Blackwell"
    return "a cu126, cu128 or cu13 wheel of torch (cu13 needs driver 580)"
