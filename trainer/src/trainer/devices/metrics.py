"""Device readings as metrics, taken when somebody scrapes. Series of a value that is absent vanish."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..obs.exporter import LabelValues, NodeState
from ..obs.logs import get_logger
from .nvml import GpuReading, Nvml, NvmlUnavailable
from .xid import XidReader

# metric -> field of GpuReading
GAUGES = {
    "trainer_gpu_utilization_ratio": "utilization_ratio",
    "trainer_gpu_memory_used_bytes": "memory_used_bytes",
    "trainer_gpu_memory_total_bytes": "memory_total_bytes",
    "trainer_gpu_power_watts": "power_watts",
    "trainer_gpu_temperature_celsius": "temperature_celsius",
    "trainer_gpu_temperature_margin_celsius": "temperature_margin_celsius",
    "trainer_gpu_clock_hertz": "clock_hertz",
    "trainer_gpu_ecc_uncorrected_total": "ecc_uncorrected",
}


def publish(readings: Sequence[GpuReading], state: NodeState) -> None:
    for metric, name in GAUGES.items():
        series: dict[LabelValues, float] = {}
        for reading in readings:
            value = getattr(reading, name)
            if value is not None:
                series[str(reading.index), reading.uuid] = float(value)
        state.replace(metric, series)
    throttle: dict[LabelValues, float] = {}
    for reading in readings:
        for reason, active in reading.throttled_by().items():
            throttle[str(reading.index), reading.uuid, reason] = float(active)
    state.replace("trainer_gpu_throttle", throttle)


@dataclass
class DeviceMetrics:
    state: NodeState
    nvml: Nvml | None
    xids: XidReader | None

    @classmethod
    def open(cls, state: NodeState, accelerator: str) -> DeviceMetrics:
        """On a node without accelerators there is nothing to read, and nothing is exported."""
        if accelerator == "none":
            return cls(state, None, None)
        return cls(state, _open_nvml(), XidReader.open())

    def refresh(self) -> None:
        if self.xids is not None:
            for xid in self.xids.new():
                self.state.add("trainer_gpu_xid_total", xid=str(xid.code))
                get_logger().error("xid", code=xid.code, pci_bus_id=xid.pci_bus_id)
        if self.nvml is None:
            return
        try:
            publish(self.nvml.readings(), self.state)
        except NvmlUnavailable as error:
            # For example after a daemon-reload took the device nodes away: unknown, not bad; try afresh next time.
            get_logger().warning("devices cannot be read", error=str(error))
            publish([], self.state)
            self.nvml.close()
            self.nvml = _open_nvml()

    def close(self) -> None:
        if self.nvml is not None:
            self.nvml.close()
        if self.xids is not None:
            self.xids.close()


def _open_nvml() -> Nvml | None:
    try:
        return Nvml()
    except NvmlUnavailable as error:
        get_logger().warning("no device metrics", error=str(error))
        return None
