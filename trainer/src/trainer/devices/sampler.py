"""What the GPUs did while they worked: clocks, power, temperature, throttle bits and PCIe link, in a thread beside."""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from .nvml import Nvml, NvmlUnavailable
from .reading import REASONS, GpuReading

SAMPLE_SECONDS = 0.2


@dataclass
class Load:
    """One GPU's samples. Values that it does not tell stay empty: unknown, never zero."""

    clocks_hertz: list[float] = field(default_factory=list)
    powers_watts: list[float] = field(default_factory=list)
    temperatures_celsius: list[float] = field(default_factory=list)
    power_limit_watts: float | None = None
    reasons: int | None = None  # all clock-event bits that were seen
    pcie: tuple[int, int] | None = None  # the best generation and width: both fall when a GPU idles

    def take(self, reading: GpuReading) -> None:
        for values, value in (
            (self.clocks_hertz, reading.clock_hertz),
            (self.powers_watts, reading.power_watts),
            (self.temperatures_celsius, reading.temperature_celsius),
        ):
            if value is not None:
                values.append(value)
        self.power_limit_watts = reading.power_limit_watts or self.power_limit_watts
        if reading.clock_reasons is not None:
            self.reasons = (self.reasons or 0) | reading.clock_reasons
        if reading.pcie_generation and reading.pcie_width:
            now = (reading.pcie_generation, reading.pcie_width)
            self.pcie = max(self.pcie, now) if self.pcie else now

    @property
    def clock_hertz(self) -> float | None:
        return statistics.median(self.clocks_hertz) if self.clocks_hertz else None

    @property
    def power_watts(self) -> float | None:
        return statistics.median(self.powers_watts) if self.powers_watts else None

    @property
    def temperature_celsius(self) -> float | None:
        return max(self.temperatures_celsius, default=None)

    def held_by(self) -> list[str]:
        return [name for bit, name in REASONS.items() if (self.reasons or 0) & bit]


class Sampler:
    """``with Sampler(open_nvml) as sampler: ...``, then ``sampler.loads`` by GPU index. None: there is no GPU."""

    def __init__(self, open_nvml: Callable[[], Nvml] | None, seconds: float = SAMPLE_SECONDS) -> None:
        self.loads: dict[int, Load] = {}
        self._open_nvml, self._seconds = open_nvml, seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name="gpu-sampler")

    def __enter__(self) -> Sampler:
        if self._open_nvml is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._open_nvml is not None:
            self._thread.join(timeout=5)

    def _loop(self) -> None:
        assert self._open_nvml is not None
        # Where NVML breaks, what was seen until then stays.
        with contextlib.suppress(NvmlUnavailable), self._open_nvml() as nvml:
            while not self._stop.wait(self._seconds):
                for reading in nvml.readings():
                    self.loads.setdefault(reading.index, Load()).take(reading)
