"""Device readings as metrics, taken when somebody scrapes. Series of a value that is absent vanish."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..obs.exporter import LabelValues, NodeState
from ..obs.logs import get_logger
from .nvml import GpuReading, Nvml, NvmlUnavailable
from .xid import XidReader
from .xid_nvml import NvmlXids, XidTally

AGAIN_SECONDS = 30.0  # between two tries to get NVML back

# metric -> field of GpuReading
GAUGES = {
    "trainer_gpu_utilization_ratio": "utilization_ratio",
    "trainer_gpu_memory_used_bytes": "memory_used_bytes",
    "trainer_gpu_memory_free_bytes": "memory_free_bytes",
    "trainer_gpu_memory_total_bytes": "memory_total_bytes",
    "trainer_gpu_power_watts": "power_watts",
    "trainer_gpu_power_limit_watts": "power_limit_watts",
    "trainer_gpu_energy_joules_total": "energy_joules",
    "trainer_gpu_memory_temperature_celsius": "memory_temperature_celsius",
    "trainer_gpu_temperature_celsius": "temperature_celsius",
    "trainer_gpu_temperature_margin_celsius": "temperature_margin_celsius",
    "trainer_gpu_clock_hertz": "clock_hertz",
    "trainer_gpu_ecc_uncorrected_total": "ecc_uncorrected",
}


def publish(readings: Sequence[GpuReading], state: NodeState) -> None:
    def series(value: Callable[[GpuReading], float | None]) -> dict[LabelValues, float]:
        told = ((reading, value(reading)) for reading in readings)
        return {(str(r.index), r.uuid): float(found) for r, found in told if found is not None}

    for metric, name in GAUGES.items():
        state.replace(metric, series(operator.attrgetter(name)))
    state.replace("trainer_gpu_lost", series(lambda reading: reading.lost))
    info = {(str(r.index), r.uuid, r.name, r.pci_bus_id or ""): 1.0 for r in readings}
    state.replace("trainer_gpu_info", info)
    throttle = {
        (str(r.index), r.uuid, reason): float(active)
        for r in readings
        for reason, active in r.throttled_by().items()
    }
    state.replace("trainer_gpu_throttle", throttle)


@dataclass
class DeviceMetrics:
    """All of a node's devices at the moment of a scrape. NVML that is away is asked for again, not more than needed."""

    state: NodeState
    nvml: Nvml | None
    xids: XidReader | None
    module: Any = None  # pynvml unless a test brings its own
    expected: bool = True  # the node has GPUs, so that what cannot be read is told
    _events: NvmlXids | None = field(default=None, init=False)
    _tally: XidTally = field(default_factory=XidTally, init=False)
    _again_at: float = field(default=0.0, init=False)

    @classmethod
    def open(cls, state: NodeState, accelerator: str, module: Any = None) -> DeviceMetrics:
        """On a node without accelerators there is nothing to read, and nothing is exported."""
        if accelerator == "none":
            return cls(state, None, None, module, expected=False)
        opened = cls(state, None, XidReader.open(), module)
        opened._open_nvml()
        return opened

    def refresh(self) -> None:
        if not self.expected:
            return
        if self.nvml is None and time.monotonic() >= self._again_at:
            self._open_nvml()
        self._read_xids()
        readings: list[GpuReading] = []
        if self.nvml is not None:
            try:
                readings = self.nvml.readings()
            except NvmlUnavailable as error:
                # For example after a daemon-reload took the device nodes away: unknown, not bad.
                get_logger().warning("devices cannot be read", error=str(error))
                self._close_nvml()
        publish(readings, self.state)
        self.state.set("trainer_nvml_available", float(self.nvml is not None))

    def close(self) -> None:
        self._close_nvml()
        if self.xids is not None:
            self.xids.close()

    def _read_xids(self) -> None:
        now = time.monotonic()
        sources = {"kernel-log": self.xids, "nvml": self._events}
        for name, source in sources.items():
            for xid in self._tally.take(name, source.new() if source is not None else (), now):
                self.state.add("trainer_gpu_xid_total", xid=str(xid.code))
                get_logger().error("xid", code=xid.code, pci_bus_id=xid.pci_bus_id, source=name)
        logged = self.xids is not None and self.xids.available
        self.state.set("trainer_xid_source_available", float(logged), source="kernel-log")
        self.state.set("trainer_xid_source_available", float(self._events is not None), source="nvml")

    def _open_nvml(self) -> None:
        self._again_at = time.monotonic() + AGAIN_SECONDS
        try:
            self.nvml = Nvml(self.module)
        except NvmlUnavailable as error:
            get_logger().warning("no device metrics", error=str(error))
            return
        self._events = NvmlXids.open(self.module)
        driver = self.nvml.driver_version()
        self.state.replace("trainer_nvidia_driver_info", {(driver,): 1.0} if driver else {})

    def _close_nvml(self) -> None:
        if self._events is not None:
            self._events.close()
        if self.nvml is not None:
            self.nvml.close()
        self._events = self.nvml = None
