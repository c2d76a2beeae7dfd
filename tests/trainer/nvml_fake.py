"""An in-process stand-in for the module pynvml: a few GPU profiles and faults to inject, each value by itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

NOT_SUPPORTED, LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, UNKNOWN = 3, 12, 13, 15, 999


class NVMLError(Exception):
    def __init__(self, value: int) -> None:
        super().__init__(f"NVML error {value}")
        self.value = value


@dataclass
class Gpu:
    """Values as NVML gives them (milliwatts, percent, MHz); `absent` names functions that are not supported."""

    name: Any = "NVIDIA L4"
    pci_device_id: int = 0x27B810DE
    total: int = 23034 << 20
    uuid: Any = ""
    reasons: int = 0x1
    ecc: int = 0
    remapped: tuple[int, int, int, int] = (0, 0, 0, 0)
    recovery: int = 0
    absent: set[str] = field(default_factory=set)
    lost: bool = False


def h100(count: int = 8) -> list[Gpu]:
    return [
        Gpu(name="NVIDIA H100 80GB HBM3", pci_device_id=0x233010DE, total=81559 << 20) for _ in range(count)
    ]


class FakeNvml:
    """What `trainer.devices.nvml.Nvml` uses of the module."""

    NVMLError = NVMLError
    NVML_ERROR_GPU_IS_LOST = GPU_IS_LOST
    NVML_ERROR_LIBRARY_NOT_FOUND = LIBRARY_NOT_FOUND
    nvmlMemory_v2, NVML_CLOCK_SM, NVML_TEMPERATURE_GPU = 33554472, 1, 0
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC = 1, 0

    def __init__(
        self, gpus: list[Gpu], init_error: int | None = None, count_error: int | None = None
    ) -> None:
        self.gpus, self.init_error, self.count_error = gpus, init_error, count_error
        for index, gpu in enumerate(gpus):
            gpu.uuid = gpu.uuid or f"GPU-{index:04d}"

    def nvmlInit(self) -> None:
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

    def _asked(self, gpu: Gpu, function: str) -> Gpu:
        if gpu.lost:
            raise NVMLError(GPU_IS_LOST)
        if function in gpu.absent:
            raise NVMLError(NOT_SUPPORTED)
        return gpu

    def __getattr__(self, function: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetUUID": lambda g: g.uuid,
            "nvmlDeviceGetName": lambda g: g.name,
            "nvmlDeviceGetPciInfo": lambda g: SimpleNamespace(
                pciDeviceId=g.pci_device_id, busId=f"00000000:{0x10 + self.gpus.index(g):02X}:00.0".encode()
            ),
            "nvmlDeviceGetMemoryInfo": lambda g, version=None: SimpleNamespace(total=g.total, used=1 << 30),
            "nvmlDeviceGetUtilizationRates": lambda g: SimpleNamespace(gpu=50),
            "nvmlDeviceGetPowerUsage": lambda g: 72_500,
            "nvmlDeviceGetTemperatureV": lambda g, sensor: 61,
            "nvmlDeviceGetTemperature": lambda g, sensor: 60,
            "nvmlDeviceGetMarginTemperature": lambda g: -2,
            "nvmlDeviceGetClockInfo": lambda g, clock: 2040,
            "nvmlDeviceGetCurrentClocksEventReasons": lambda g: g.reasons,
            "nvmlDeviceGetCurrentClocksThrottleReasons": lambda g: g.reasons,
            "nvmlDeviceGetTotalEccErrors": lambda g, kind, counter: g.ecc,
            "nvmlDeviceGetRemappedRows": lambda g: g.remapped,
            "nvmlDeviceGetFieldValues": lambda g, ids: [
                SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=g.recovery))
            ],
        }
        if function not in answers:
            raise AttributeError(function)
        return lambda gpu, *arguments: answers[function](self._asked(gpu, function), *arguments)
