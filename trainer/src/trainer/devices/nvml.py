"""NVML through a thin wrapper: each value is read by itself, and one that a device does not have is None, never 0.

Facts behind the details: nvidia-ml-py 13 and nvml.h. Memory of version 2 keeps the driver's reserve apart; clock
event reasons were called throttle reasons before driver 535; the temperature margin needs driver 570; every entry of
GetFieldValues has a return code and a type of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from typing import Any

from .reading import GpuHealth, GpuReading, MigInstance

LIBRARY_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 12, 15, 16
# Errors that are not one GPU's: not initialised, driver not loaded, refused by the system, driver and library of
# different versions, and "unknown", which a daemon-reload leaves behind when it takes the device nodes away.
BROKEN = frozenset({1, 9, 17, 18, 999})
MISMATCH = 18
# Field ids (nvml.h)
MEMORY_TEMPERATURE, POWER_INSTANT, RECOVERY_ACTION = 82, 186, 230
NVLINK_ERRORS = {38: "crc_flit", 45: "crc_data", 52: "replay", 59: "recovery"}  # totals over all links
RECOVERY_ACTIONS = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain-p2p",
    4: "drain-and-reset",
    5: "recover-imex-domain",
    6: "bus-reset",
    7: "reboot",  # of the whole system
}
VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
FABRIC_STATES = {1: "not started", 2: "in progress", 3: "completed"}
MOST_NVLINKS = 36


class NvmlUnavailable(Exception):
    """NVML cannot be used: neither good nor bad is known of the GPUs.

    ``library_missing``: there is no NVIDIA driver here at all. ``mismatch``: kernel module and library differ.
    """

    def __init__(self, message: str, library_missing: bool = False, mismatch: bool = False) -> None:
        super().__init__(message)
        self.library_missing = library_missing
        self.mismatch = mismatch


class Nvml:
    """Initialised NVML; raises NvmlUnavailable. ``module`` is pynvml unless a test brings its own.

    Functions are looked up by name: an older nvidia-ml-py may lack one (nvitop 88), as an older driver may (pynvml 43).
    """

    def __init__(self, module: Any = None) -> None:
        if module is None:
            import pynvml as module
        self._m = module
        try:
            module.nvmlInit()
        except module.NVMLError as error:
            raise self._unavailable(error) from error
        self._handles: dict[int, Any] = {}
        self._known: dict[int, GpuReading] = {}

    def __enter__(self) -> Nvml:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with contextlib.suppress(self._m.NVMLError):
            self._m.nvmlShutdown()

    def driver_version(self) -> str | None:
        version = self._value("nvmlSystemGetDriverVersion")
        return _text(version) if version is not None else None

    def readings(self) -> list[GpuReading]:
        """All GPUs in NVML's order. A GPU that is lost keeps its name and is not asked again."""
        return [self._reading(index) for index in range(self._count())]

    def health(self) -> list[GpuHealth]:
        """The same GPUs; one that cannot be asked has no value at all."""
        return [self._health(index) for index in range(self._count())]

    def fabric_states(self) -> list[str | None]:
        """Of each GPU: completed, or what it is instead; None: it has no fabric to be registered with."""
        return [self._fabric_state(index) for index in range(self._count())]

    def _count(self) -> int:
        try:
            return int(self._m.nvmlDeviceGetCount())
        except self._m.NVMLError as error:
            raise self._unavailable(error) from error

    def _reading(self, index: int) -> GpuReading:
        known = self._known.get(index)
        if known is not None and known.lost:
            return known
        uuid, name = (known.uuid, known.name) if known else (f"unknown-{index}", "unknown")
        try:
            reading = self._read(index, self._handle(index))
        except self._m.NVMLError as error:
            code = _code(error)
            if code in BROKEN:
                raise self._unavailable(error, f"GPU {index}: ") from error
            reading = {
                GPU_IS_LOST: GpuReading(index, uuid, name, lost=True),
                RESET_REQUIRED: GpuReading(index, uuid, name, recovery_action="reset"),
            }.get(code or 0, GpuReading(index, uuid, name, fault=str(error)))
        self._known[index] = reading
        return reading

    def _handle(self, index: int) -> Any:
        if index not in self._handles:
            self._handles[index] = self._m.nvmlDeviceGetHandleByIndex(index)
        return self._handles[index]

    def _read(self, index: int, handle: Any) -> GpuReading:
        m, value = self._m, self._value
        uuid = self._uuid(index, handle)
        name = value("nvmlDeviceGetName", handle)
        memory, pci = self._memory(handle), value("nvmlDeviceGetPciInfo", handle)
        fields = self._fields(handle, (MEMORY_TEMPERATURE, POWER_INSTANT, RECOVERY_ACTION))
        power = value("nvmlDeviceGetPowerUsage", handle)
        power = power if power is not None else fields.get(POWER_INSTANT)
        clock = value("nvmlDeviceGetClockInfo", handle, m.NVML_CLOCK_SM)
        utilization = value("nvmlDeviceGetUtilizationRates", handle)
        remapped = value("nvmlDeviceGetRemappedRows", handle)
        uncorrected = (m.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, m.NVML_VOLATILE_ECC)
        action = fields.get(RECOVERY_ACTION)
        return GpuReading(
            index=index,
            uuid=uuid,
            name=_text(name) if name is not None else "unknown",
            pci_device_id=f"{pci.pciDeviceId >> 16:04X}" if pci is not None else None,
            pci_subsystem_id=f"{pci.pciSubSystemId >> 16:04X}" if pci is not None else None,
            pci_bus_id=_text(pci.busId) if pci is not None else None,
            compute_capability=self._capability(handle),
            memory_total_bytes=getattr(memory, "total", None),
            memory_used_bytes=getattr(memory, "used", None),
            memory_free_bytes=getattr(memory, "free", None),
            utilization_ratio=utilization.gpu / 100 if utilization is not None else None,
            power_watts=_thousandth(power),
            power_limit_watts=_thousandth(value("nvmlDeviceGetEnforcedPowerLimit", handle)),
            energy_joules=_thousandth(value("nvmlDeviceGetTotalEnergyConsumption", handle)),
            temperature_celsius=self._newer_or_older(
                "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature", handle, m.NVML_TEMPERATURE_GPU
            ),
            temperature_margin_celsius=value("nvmlDeviceGetMarginTemperature", handle),
            memory_temperature_celsius=fields.get(MEMORY_TEMPERATURE),
            clock_hertz=clock * 1e6 if clock is not None else None,
            clock_reasons=self._newer_or_older(
                "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons", handle
            ),
            pcie_generation=value("nvmlDeviceGetCurrPcieLinkGeneration", handle),
            pcie_width=value("nvmlDeviceGetCurrPcieLinkWidth", handle),
            ecc_uncorrected=value("nvmlDeviceGetTotalEccErrors", handle, *uncorrected),
            remap_pending=bool(remapped[2]) if remapped is not None else None,
            remap_failed=bool(remapped[3]) if remapped is not None else None,
            recovery_action=(
                RECOVERY_ACTIONS.get(int(action), f"unknown ({int(action)})") if action is not None else None
            ),
            mig=self._mig(handle),
        )

    def _uuid(self, index: int, handle: Any) -> str:
        """The one value that must be had: where even it fails for a reason that is not this GPU's, NVML is broken."""
        try:
            return _text(self._m.nvmlDeviceGetUUID(handle))
        except UnicodeDecodeError as error:
            return bytes(error.object).hex()
        except self._m.NVMLError as error:
            if _code(error) in BROKEN | {GPU_IS_LOST, RESET_REQUIRED}:
                raise
            return f"unknown-{index}"

    def _memory(self, handle: Any) -> Any:
        """Version 2 where there is one: version 1 counts the driver's own reserve as used (pynvml 59)."""
        second = getattr(self._m, "nvmlMemory_v2", None)
        found = self._value("nvmlDeviceGetMemoryInfo", handle, second) if second is not None else None
        return found if found is not None else self._value("nvmlDeviceGetMemoryInfo", handle)

    def _capability(self, handle: Any) -> tuple[int, int] | None:
        found = self._value("nvmlDeviceGetCudaComputeCapability", handle)
        return (int(found[0]), int(found[1])) if found is not None else None

    def _mig(self, handle: Any) -> tuple[MigInstance, ...] | None:
        mode = self._value("nvmlDeviceGetMigMode", handle)
        if mode is None or mode[0] != 1:
            return None
        parts = []
        for place in range(self._value("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
            part = self._value("nvmlDeviceGetMigDeviceHandleByIndex", handle, place)
            uuid = self._value("nvmlDeviceGetUUID", part) if part is not None else None
            if uuid is not None:
                memory = self._memory(part)
                total, used = (memory.total, memory.used) if memory is not None else (None, None)
                parts.append(MigInstance(_text(uuid), total, used))
        return tuple(parts)

    def _health(self, index: int) -> GpuHealth:
        known = self._known.get(index)
        if known is not None and (known.lost or known.fault):
            return GpuHealth(index)
        try:
            return self._ask_health(index, self._handle(index))
        except self._m.NVMLError as error:
            if _code(error) in BROKEN:
                raise self._unavailable(error, f"GPU {index}: ") from error
            return GpuHealth(index)

    def _ask_health(self, index: int, handle: Any) -> GpuHealth:
        m, value = self._m, self._value

        def ecc(kind: int, counter: int, place: int) -> int | None:
            return value("nvmlDeviceGetMemoryErrorCounter", handle, kind, counter, place)

        corrected, uncorrected = m.NVML_MEMORY_ERROR_TYPE_CORRECTED, m.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        volatile, dram, sram = m.NVML_VOLATILE_ECC, m.NVML_MEMORY_LOCATION_DRAM, m.NVML_MEMORY_LOCATION_SRAM
        remapped = value("nvmlDeviceGetRemappedRows", handle)
        pages = [value("nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)]
        pending = value("nvmlDeviceGetRetiredPagesPendingStatus", handle)
        links = self._nvlinks(handle)
        fields = self._fields(handle, tuple(NVLINK_ERRORS))
        errors = {name: int(fields[id_]) for id_, name in NVLINK_ERRORS.items() if id_ in fields}
        return GpuHealth(
            index=index,
            ecc_corrected_sram=ecc(corrected, volatile, sram),
            ecc_corrected_dram=ecc(corrected, volatile, dram),
            ecc_uncorrected_sram=ecc(uncorrected, volatile, sram),
            ecc_uncorrected_dram=ecc(uncorrected, volatile, dram),
            ecc_uncorrected_sram_aggregate=ecc(uncorrected, m.NVML_AGGREGATE_ECC, sram),
            remapped_uncorrectable=remapped[1] if remapped is not None else None,
            retired_pages=sum(len(page) for page in pages if page is not None)
            if any(page is not None for page in pages)
            else None,
            retired_pages_pending=bool(pending) if pending is not None else None,
            nvlinks=len(links) if links else None,
            nvlinks_inactive=links.count(False) if links else None,
            nvlink_errors=errors if links and errors else None,
            pcie_generation_max=value("nvmlDeviceGetMaxPcieLinkGeneration", handle),
            pcie_width_max=value("nvmlDeviceGetMaxPcieLinkWidth", handle),
        )

    def _nvlinks(self, handle: Any) -> list[bool]:
        """Active or not, link by link; a link that does not exist answers with an error."""
        states = (self._value("nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_NVLINKS))
        return [bool(state) for state in states if state is not None]

    def _fabric_state(self, index: int) -> str | None:
        structure = getattr(self._m, "c_nvmlGpuFabricInfo_v2_t", None)
        if structure is None:
            return None
        info = structure()
        try:
            answer = self._value("nvmlDeviceGetGpuFabricInfoV", self._handle(index), ctypes.byref(info))
        except self._m.NVMLError:  # another check says so
            return None
        if answer is None:
            return None
        state = FABRIC_STATES.get(int(info.state))
        # The status only speaks of a registration that came to its end (nvml.h).
        return f"failed with NVML error {info.status}" if state == "completed" and info.status else state

    def _fields(self, handle: Any, ids: Sequence[int]) -> dict[int, float]:
        """Field id -> value, of those that the device has: each has its own return code and type."""
        found = self._value("nvmlDeviceGetFieldValues", handle, list(ids)) or ()
        return {
            id_: getattr(entry.value, VALUE_TYPES[entry.valueType])
            for id_, entry in zip(ids, found, strict=False)
            if entry.nvmlReturn == 0 and 0 <= entry.valueType < len(VALUE_TYPES)
        }

    def _value(self, function: str, *arguments: Any) -> Any:
        """The value, or None where this device, driver or module has none. A lost GPU is raised."""
        ask = getattr(self._m, function, None)
        if ask is None:
            return None
        try:
            return ask(*arguments)
        except self._m.NVMLError as error:
            if _code(error) in (GPU_IS_LOST, RESET_REQUIRED):
                raise
            return None
        except UnicodeDecodeError as error:  # a name that is not UTF-8 (gpuopenanalytics/pynvml 53)
            return bytes(error.object).hex()

    def _newer_or_older(self, newer: str, older: str, *arguments: Any) -> Any:
        found = self._value(newer, *arguments)
        return found if found is not None else self._value(older, *arguments)

    def _unavailable(self, error: Exception, where: str = "") -> NvmlUnavailable:
        code = _code(error)
        return NvmlUnavailable(f"NVML: {where}{error}", code == LIBRARY_NOT_FOUND, code == MISMATCH)


def _code(error: Exception) -> int | None:
    return getattr(error, "value", None)


def _thousandth(value: float | None) -> float | None:
    """Of milliwatts and millijoules."""
    return value / 1000 if value is not None else None


def _text(value: Any) -> str:
    """Older versions of the module answer in bytes."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
