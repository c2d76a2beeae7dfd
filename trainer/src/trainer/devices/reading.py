"""What NVML tells of one GPU, as plain values in base units. None: the device or its driver does not tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Bits of the clock event reasons (nvml.h). The first three mean that hardware protects itself. Not named here, since
# they say nothing against a GPU: 0x1 idle, 0x2 application clocks, 0x10 sync boost, 0x100 display.
HARDWARE_REASONS = {0x8: "hw_slowdown", 0x40: "hw_thermal", 0x80: "hw_power_brake"}
SOFTWARE_REASONS = {0x20: "sw_thermal", 0x4: "sw_power_cap"}
REASONS = {**HARDWARE_REASONS, **SOFTWARE_REASONS}


@dataclass(frozen=True)
class MigInstance:
    """A part of a GPU in MIG mode: CUDA knows it by its own UUID, NVML only tells its memory."""

    uuid: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None


@dataclass(frozen=True)
class GpuReading:
    """One GPU at one moment, cheap enough for every scrape. ``lost``: fallen off the bus."""

    index: int
    uuid: str
    name: str
    lost: bool = False
    fault: str | None = None  # why this GPU, and only it, gives no handle
    pci_device_id: str | None = None  # four hex digits, upper case
    pci_subsystem_id: str | None = None  # the same: boards of one device id differ
    pci_bus_id: str | None = None  # as NVML spells it: 00000000:3B:00.0
    compute_capability: tuple[int, int] | None = None
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None  # without the driver's reserve, which is neither used nor free
    memory_free_bytes: int | None = None
    utilization_ratio: float | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    energy_joules: float | None = None
    temperature_celsius: float | None = None
    temperature_margin_celsius: float | None = None  # distance to the slowdown; may be 0 or negative
    memory_temperature_celsius: float | None = None
    clock_hertz: float | None = None
    clock_reasons: int | None = None  # bit mask
    pcie_generation: int | None = None  # both fall when the GPU idles
    pcie_width: int | None = None
    ecc_uncorrected: int | None = None  # volatile: since the driver was loaded
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: str | None = None
    mig: tuple[MigInstance, ...] | None = None  # None: not in MIG mode

    def throttled_by(self) -> dict[str, bool]:
        """Reason -> whether it holds the clock down now; empty where the device does not tell."""
        mask = self.clock_reasons
        return {} if mask is None else {name: bool(mask & bit) for bit, name in REASONS.items()}


@dataclass(frozen=True)
class GpuHealth:
    """What changes seldom and costs more to read: for the self-check."""

    index: int
    ecc_corrected_sram: int | None = None  # these four: volatile
    ecc_corrected_dram: int | None = None
    ecc_uncorrected_sram: int | None = None
    ecc_uncorrected_dram: int | None = None
    ecc_uncorrected_sram_aggregate: int | None = None  # over the GPU's life
    remapped_uncorrectable: int | None = None
    retired_pages: int | None = None  # before Ampere
    retired_pages_pending: bool | None = None
    nvlinks: int | None = None  # None: this model has none
    nvlinks_inactive: int | None = None
    nvlink_errors: dict[str, int] | None = None  # since the driver was loaded
    pcie_generation_max: int | None = None  # of this GPU in this machine
    pcie_width_max: int | None = None


def reading_of(uuid: str | None, readings: Sequence[GpuReading]) -> GpuReading | None:
    """The GPU with this UUID, or the one that the MIG part with this UUID belongs to.

    CUDA and NVML may number GPUs differently (pytorch PR 92315): only the UUID says which is which.
    """
    for reading in readings:
        if uuid and (reading.uuid == uuid or any(part.uuid == uuid for part in reading.mig or ())):
            return reading
    return None
