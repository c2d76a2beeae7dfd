"""An in-process stand-in for the module pynvml (nvidia-ml-py 13): profiles of EC2's GPUs, faults by call.

Values are as NVML gives them: milliwatts, millijoules, percent, MHz. What a real device of that kind does not support
is in the profile's ``absent``; a test adds faults per GPU and function with ``fails``. That names, constants and
signatures are the real module's is a test of its own (test_devices_nvml.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

UNINITIALIZED, NOT_SUPPORTED, NOT_FOUND, LIBRARY_NOT_FOUND = 1, 3, 6, 12
FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, MISMATCH, UNKNOWN = 13, 15, 16, 18, 999
Fault = Any  # an exception to raise, or the code of an NVMLError


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        names = {
            GPU_IS_LOST: "GPU is lost",
            UNKNOWN: "Unknown Error",
            MISMATCH: "Driver/library version mismatch",
        }
        super().__init__(names.get(value, f"NVML error {value}"))
        self.value = value


class FabricInfo(ctypes.Structure):
    _fields_ = [("state", ctypes.c_uint), ("status", ctypes.c_uint)]


@dataclass
class Mig:
    uuid: str
    total: int = 9856 << 20
    used: int = 1 << 30


@dataclass
class Gpu:
    """One device; `absent` names functions that it does not support."""

    name: Any = "NVIDIA L4"
    pci_device_id: int = 0x27B810DE
    pci_subsystem_id: int = 0x16CA10DE
    capability: tuple[int, int] = (8, 9)
    total: int = 23034 << 20
    used: int = 1 << 30
    reserved: int = 512 << 20  # of the driver; version 1 of the memory call counts it as used
    uuid: Any = ""
    power: int = 72_500
    power_limit: int = 72_000
    energy: int = 123_456_000
    reasons: int = 0x1
    margin: int = 20
    clock: int = 2040
    ecc: int = 0  # uncorrected, volatile, in total
    ecc_counters: dict[tuple[int, int, int], int] = field(default_factory=dict)  # kind, counter, place
    remapped: tuple[int, int, int, int] = (0, 0, 0, 0)
    retired: tuple[int, int] = (0, 0)
    retired_pending: int = 0
    recovery: int = 0
    links: list[int] = field(default_factory=list)  # active or not; none: no NVLink
    pcie: tuple[int, int] = (4, 16)
    pcie_max: tuple[int, int] = (4, 16)
    fabric_state: int | None = None  # None: not supported
    fabric_status: int = 0  # of a registration that is over: an NVML error, or none
    fields: dict[int, tuple[int, int, float]] = field(default_factory=dict)  # id -> return code, type, value
    mig: list[Mig] | None = None
    absent: set[str] = field(default_factory=set)
    fails: dict[str, Fault] = field(default_factory=dict)
    lost: bool = False


BEFORE_AMPERE = {"nvmlDeviceGetRemappedRows", "nvmlDeviceGetMigMode"}
NO_PAGES = {
    "nvmlDeviceGetRetiredPages",
    "nvmlDeviceGetRetiredPagesPendingStatus",
}  # rows are remapped instead
# What a vGPU of a g6f does not tell
VGPU = {
    *("nvmlDeviceGetPowerUsage", "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetTotalEnergyConsumption"),
    *("nvmlDeviceGetClockInfo", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"),
    *("nvmlDeviceGetMarginTemperature", "nvmlDeviceGetTotalEccErrors", "nvmlDeviceGetMemoryErrorCounter"),
    *("nvmlDeviceGetRemappedRows", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetFieldValues"),
    *("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrPcieLinkWidth", "nvmlDeviceGetMigMode"),
    *("nvmlDeviceGetCurrPcieLinkGeneration", *NO_PAGES),
}


def _gpu(name: str, device: int, mib: int, watts: int, **more: Any) -> Callable[[], Gpu]:
    def make() -> Gpu:
        given: dict[str, Any] = {"absent": set(NO_PAGES), **more}
        given["absent"], given["links"] = set(given["absent"]), list(given.get("links", ()))
        return Gpu(
            name=name,
            pci_device_id=device << 16 | 0x10DE,
            total=mib << 20,
            power=watts * 900,
            power_limit=watts * 1000,
            **given,
        )

    return make


PROFILES: dict[str, Callable[[], Gpu]] = {
    "T4": _gpu(
        "Tesla T4", 0x1EB8, 15360, 70, capability=(7, 5), absent=BEFORE_AMPERE, pcie=(3, 8), pcie_max=(3, 8)
    ),
    "V100": _gpu(
        "Tesla V100-SXM2-16GB",
        0x1DB1,
        16384,
        300,
        capability=(7, 0),
        absent=BEFORE_AMPERE,
        links=[1] * 6,
        pcie=(3, 16),
        pcie_max=(3, 16),
    ),
    "A10G": _gpu("NVIDIA A10G", 0x2237, 23028, 300, capability=(8, 6)),
    "L4": _gpu("NVIDIA L4", 0x27B8, 23034, 72, capability=(8, 9)),
    "L40S": _gpu("NVIDIA L40S", 0x26B9, 46068, 350, capability=(8, 9)),
    "A100": _gpu("NVIDIA A100-SXM4-40GB", 0x20B0, 40960, 400, capability=(8, 0), links=[1] * 12),
    "H100": _gpu(
        "NVIDIA H100 80GB HBM3",
        0x2330,
        81559,
        700,
        capability=(9, 0),
        links=[1] * 18,
        pcie=(5, 16),
        pcie_max=(5, 16),
        fabric_state=3,
    ),
    "H200": _gpu(
        "NVIDIA H200",
        0x2335,
        143771,
        700,
        capability=(9, 0),
        links=[1] * 18,
        pcie=(5, 16),
        pcie_max=(5, 16),
        fabric_state=3,
    ),
    "B200": _gpu(
        "NVIDIA B200",
        0x2901,
        183359,
        1000,
        capability=(10, 0),
        links=[1] * 18,
        pcie=(5, 16),
        pcie_max=(5, 16),
        fabric_state=3,
    ),
    "B300": _gpu(
        "NVIDIA B300 SXM6 AC",
        0x3182,
        275040,
        1100,
        capability=(10, 3),
        links=[1] * 18,
        pcie=(6, 16),
        pcie_max=(6, 16),
        fabric_state=3,
    ),
    "g6f": _gpu("NVIDIA L4-3Q", 0x27B8, 2861, 72, capability=(8, 9), absent=VGPU),
    "MIG": _gpu(
        "NVIDIA A100-SXM4-40GB",
        0x20B0,
        40960,
        400,
        capability=(8, 0),
        links=[1] * 12,
        mig=[Mig("MIG-1111"), Mig("MIG-2222")],
        absent=NO_PAGES | {"nvmlDeviceGetUtilizationRates"},
    ),
}


def node(profile: str, count: int = 1) -> list[Gpu]:
    return [PROFILES[profile]() for _ in range(count)]


def h100(count: int = 8) -> list[Gpu]:
    return node("H100", count)


class FakeNvml:
    """What `trainer.devices` uses of the module. ``init_error``, ``count_error``: codes, taken at each call."""

    NVMLError = NVMLError
    nvmlMemory_v2, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 33554472, 1, 0
    NVML_MEMORY_ERROR_TYPE_CORRECTED, NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 0, 1
    NVML_VOLATILE_ECC, NVML_AGGREGATE_ECC = 0, 1
    NVML_MEMORY_LOCATION_DRAM, NVML_MEMORY_LOCATION_SRAM = 2, 7
    c_nvmlGpuFabricInfo_v2_t = FabricInfo

    def __init__(
        self, gpus: list[Gpu], init_error: int | None = None, count_error: int | None = None
    ) -> None:
        self.gpus, self.init_error, self.count_error = gpus, init_error, count_error
        self.started = 0  # how often NVML was initialised
        self.calls: list[str] = []
        for index, gpu in enumerate(gpus):
            gpu.uuid = gpu.uuid or f"GPU-{index:04d}"

    def nvmlInit(self) -> None:
        self.started += 1
        if self.init_error is not None:
            raise NVMLError(self.init_error)

    def nvmlShutdown(self) -> None:
        pass

    def nvmlSystemGetDriverVersion(self) -> bytes:
        return b"580.95.05"

    def nvmlDeviceGetCount(self) -> int:
        if self.count_error is not None:
            raise NVMLError(self.count_error)
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Gpu:
        return self._asked(self.gpus[index], "nvmlDeviceGetHandleByIndex")

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Gpu, index: int) -> Mig:
        parts = self._asked(device, "nvmlDeviceGetMigDeviceHandleByIndex").mig or []
        if index >= len(parts):
            raise NVMLError(NOT_FOUND)
        return parts[index]

    def nvmlDeviceGetFieldValues(self, handle: Gpu, fieldIds: list[int]) -> list[Any]:
        gpu = self._asked(handle, "nvmlDeviceGetFieldValues")
        known = {230: (0, 1, gpu.recovery), **gpu.fields}
        members = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
        answers = []
        for id_ in fieldIds:
            code, kind, value = known.get(id_, (NOT_SUPPORTED, 0, 0))
            union = SimpleNamespace(**dict.fromkeys(members, -(10**9)))  # the wrong member reads as nonsense
            setattr(union, members[kind], value)
            answers.append(SimpleNamespace(fieldId=id_, nvmlReturn=code, valueType=kind, value=union))
        return answers

    def nvmlDeviceGetGpuFabricInfoV(self, device: Gpu, gpuFabricInfo: Any) -> int:
        gpu = self._asked(device, "nvmlDeviceGetGpuFabricInfoV")
        if gpu.fabric_state is None:
            raise NVMLError(NOT_SUPPORTED)
        gpuFabricInfo._obj.state, gpuFabricInfo._obj.status = gpu.fabric_state, gpu.fabric_status
        return 0

    def _asked(self, gpu: Any, function: str) -> Any:
        self.calls.append(function)
        if isinstance(gpu, Mig):
            if function not in ("nvmlDeviceGetUUID", "nvmlDeviceGetMemoryInfo"):
                raise NVMLError(NOT_SUPPORTED)
            return gpu
        if gpu.lost:
            raise NVMLError(GPU_IS_LOST)
        fault = gpu.fails.get(function)
        if fault is not None:
            raise NVMLError(fault) if isinstance(fault, int) else fault
        if function in gpu.absent:
            raise NVMLError(NOT_SUPPORTED)
        return gpu

    def __getattr__(self, function: str) -> Any:
        if function not in ANSWERS:
            raise AttributeError(function)
        return lambda gpu, *arguments: ANSWERS[function](self, self._asked(gpu, function), *arguments)

    def _pci(self, gpu: Gpu) -> Any:
        place = 0x10 + self.gpus.index(gpu)
        return SimpleNamespace(
            pciDeviceId=gpu.pci_device_id,
            pciSubSystemId=gpu.pci_subsystem_id,
            busId=f"00000000:{place:02X}:00.0".encode(),
        )


def _memory(gpu: Any, version: int | None = None) -> Any:
    reserve = getattr(gpu, "reserved", 0)
    free = gpu.total - gpu.used - reserve
    return SimpleNamespace(total=gpu.total, used=gpu.used + (0 if version else reserve), free=free)


def _link(gpu: Gpu, link: int) -> int:
    if link >= len(gpu.links):
        raise NVMLError(NOT_SUPPORTED)
    return gpu.links[link]


ANSWERS: dict[str, Any] = {
    "nvmlDeviceGetUUID": lambda m, g: g.uuid,
    "nvmlDeviceGetName": lambda m, g: g.name,
    "nvmlDeviceGetPciInfo": lambda m, g: m._pci(g),
    "nvmlDeviceGetCudaComputeCapability": lambda m, g: g.capability,
    "nvmlDeviceGetMemoryInfo": lambda m, g, version=None: _memory(g, version),
    "nvmlDeviceGetUtilizationRates": lambda m, g: SimpleNamespace(gpu=50),
    "nvmlDeviceGetPowerUsage": lambda m, g: g.power,
    "nvmlDeviceGetEnforcedPowerLimit": lambda m, g: g.power_limit,
    "nvmlDeviceGetTotalEnergyConsumption": lambda m, g: g.energy,
    "nvmlDeviceGetTemperatureV": lambda m, g, sensor: 61,
    "nvmlDeviceGetTemperature": lambda m, g, sensor: 60,
    "nvmlDeviceGetMarginTemperature": lambda m, g: g.margin,
    "nvmlDeviceGetClockInfo": lambda m, g, kind: g.clock,
    "nvmlDeviceGetCurrentClocksEventReasons": lambda m, g: g.reasons,
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda m, g: g.reasons,
    "nvmlDeviceGetTotalEccErrors": lambda m, g, kind, counter: g.ecc,
    "nvmlDeviceGetMemoryErrorCounter": lambda m, g, *which: g.ecc_counters.get(which, 0),
    "nvmlDeviceGetRemappedRows": lambda m, g: g.remapped,
    "nvmlDeviceGetRetiredPages": lambda m, g, cause: [0] * g.retired[cause],
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda m, g: g.retired_pending,
    "nvmlDeviceGetNvLinkState": lambda m, g, link: _link(g, link),
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda m, g: g.pcie[0],
    "nvmlDeviceGetCurrPcieLinkWidth": lambda m, g: g.pcie[1],
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda m, g: g.pcie_max[0],
    "nvmlDeviceGetMaxPcieLinkWidth": lambda m, g: g.pcie_max[1],
    "nvmlDeviceGetMigMode": lambda m, g: [int(g.mig is not None), int(g.mig is not None)],
    "nvmlDeviceGetMaxMigDeviceCount": lambda m, g: 7,
}
