"""NVML through a thin wrapper: each value is read by itself, and one that a device does not have is None, never 0.

Facts behind the details: nvidia-ml-py 13 and nvml.h. Memory of version 2 keeps the driver's reserve apart; clock
event reasons were called throttle reasons before driver 535; the temperature margin needs driver 570; every entry of
GetFieldValues has a return code of its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Bits of the clock event reasons (nvml.h). The first three mean that hardware protects itself.
HARDWARE_REASONS = {0x8: "hw_slowdown", 0x40: "hw_thermal", 0x80: "hw_power_brake"}
SOFTWARE_REASONS = {0x20: "sw_thermal", 0x4: "sw_power_cap"}
REASONS = {**HARDWARE_REASONS, **SOFTWARE_REASONS}
RECOVERY_ACTION_FIELD = 230
RECOVERY_ACTIONS = {0: "none", 1: "reset", 2: "reboot", 3: "drain-p2p", 4: "drain-and-reset"}


class NvmlUnavailable(Exception):
    """NVML cannot be used. ``library_missing``: there is no NVIDIA driver here at all."""

    def __init__(self, message: str, library_missing: bool) -> None:
        super().__init__(message)
        self.library_missing = library_missing


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment; None: the device or driver does not tell. ``lost``: fallen off the bus."""

    index: int
    uuid: str
    name: str
    lost: bool = False
    pci_device_id: str | None = None  # four hex digits, upper case
    pci_bus_id: str | None = None  # as NVML spells it: 00000000:3B:00.0
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_ratio: float | None = None
    power_watts: float | None = None
    temperature_celsius: float | None = None
    temperature_margin_celsius: float | None = None
    clock_hertz: float | None = None
    clock_reasons: int | None = None  # bit mask
    ecc_uncorrected: int | None = None  # volatile: since the driver was loaded
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: str | None = None

    def throttled_by(self) -> dict[str, bool]:
        """Reason -> whether it holds the clock down now; empty where the device does not tell."""
        mask = self.clock_reasons
        return {} if mask is None else {name: bool(mask & bit) for bit, name in REASONS.items()}


class Nvml:
    """Initialised NVML; raises NvmlUnavailable. ``module`` is pynvml unless a test brings its own."""

    def __init__(self, module: Any = None) -> None:
        if module is None:
            import pynvml as module
        self._m = module
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            missing = getattr(error, "value", None) == getattr(module, "NVML_ERROR_LIBRARY_NOT_FOUND", 12)
            raise NvmlUnavailable(f"NVML: {error}", missing) from error
        self._handles: dict[int, Any] = {}
        self._known: dict[int, GpuReading] = {}

    def close(self) -> None:
        with contextlib.suppress(self._m.NVMLError):
            self._m.nvmlShutdown()

    def driver_version(self) -> str | None:
        version = self._value(self._m.nvmlSystemGetDriverVersion)
        return _text(version) if version is not None else None

    def readings(self) -> list[GpuReading]:
        """All GPUs in NVML's order. A GPU that is lost keeps its name and is not asked again."""
        try:
            count = self._m.nvmlDeviceGetCount()
        except self._m.NVMLError as error:
            raise NvmlUnavailable(f"NVML: {error}", False) from error
        return [self._reading(index) for index in range(count)]

    def _reading(self, index: int) -> GpuReading:
        known = self._known.get(index)
        if known is not None and known.lost:
            return known
        try:
            if index not in self._handles:
                self._handles[index] = self._m.nvmlDeviceGetHandleByIndex(index)
            reading = self._read(index, self._handles[index])
        except self._m.NVMLError as error:
            if getattr(error, "value", None) != self._m.NVML_ERROR_GPU_IS_LOST:
                raise NvmlUnavailable(f"NVML, GPU {index}: {error}", False) from error
            uuid, name = (known.uuid, known.name) if known else ("unknown", "unknown")
            reading = GpuReading(index, uuid, name, lost=True)
        self._known[index] = reading
        return reading

    def _read(self, index: int, handle: Any) -> GpuReading:
        m, value = self._m, self._value
        memory = value(m.nvmlDeviceGetMemoryInfo, handle, m.nvmlMemory_v2) or value(
            m.nvmlDeviceGetMemoryInfo, handle
        )
        power = value(m.nvmlDeviceGetPowerUsage, handle)
        clock = value(m.nvmlDeviceGetClockInfo, handle, m.NVML_CLOCK_SM)
        temperature = value(m.nvmlDeviceGetTemperatureV, handle, m.NVML_TEMPERATURE_GPU)
        if temperature is None:
            temperature = value(m.nvmlDeviceGetTemperature, handle, m.NVML_TEMPERATURE_GPU)
        reasons = value(m.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if reasons is None:
            reasons = value(m.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        utilization = value(m.nvmlDeviceGetUtilizationRates, handle)
        pci = value(m.nvmlDeviceGetPciInfo, handle)
        remapped = value(m.nvmlDeviceGetRemappedRows, handle)
        uuid, name = value(m.nvmlDeviceGetUUID, handle), value(m.nvmlDeviceGetName, handle)
        return GpuReading(
            index=index,
            uuid=_text(uuid) if uuid is not None else f"unknown-{index}",
            name=_text(name) if name is not None else "unknown",
            pci_device_id=f"{pci.pciDeviceId >> 16:04X}" if pci is not None else None,
            pci_bus_id=_text(pci.busId) if pci is not None and hasattr(pci, "busId") else None,
            memory_total_bytes=memory.total if memory is not None else None,
            memory_used_bytes=memory.used if memory is not None else None,
            utilization_ratio=utilization.gpu / 100 if utilization is not None else None,
            power_watts=power / 1000 if power is not None else None,
            temperature_celsius=temperature,
            temperature_margin_celsius=value(m.nvmlDeviceGetMarginTemperature, handle),
            clock_hertz=clock * 1e6 if clock is not None else None,
            clock_reasons=reasons,
            ecc_uncorrected=value(
                m.nvmlDeviceGetTotalEccErrors,
                handle,
                m.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                m.NVML_VOLATILE_ECC,
            ),
            remap_pending=bool(remapped[2]) if remapped is not None else None,
            remap_failed=bool(remapped[3]) if remapped is not None else None,
            recovery_action=self._recovery_action(handle),
        )

    def _recovery_action(self, handle: Any) -> str | None:
        fields = self._value(self._m.nvmlDeviceGetFieldValues, handle, [RECOVERY_ACTION_FIELD])
        if not fields or fields[0].nvmlReturn != 0:
            return None
        number = int(fields[0].value.uiVal)
        return RECOVERY_ACTIONS.get(number, f"unknown ({number})")

    def _value(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The value, or None where this device or driver has none. A lost GPU is raised."""
        try:
            return function(*arguments)
        except self._m.NVMLError as error:
            if getattr(error, "value", None) == self._m.NVML_ERROR_GPU_IS_LOST:
                raise
            return None
        except UnicodeDecodeError as error:  # a name that is not UTF-8 (gpuopenanalytics/pynvml 53)
            return error.object.hex()


def _text(value: Any) -> str:
    """Older versions of the module answer in bytes."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
