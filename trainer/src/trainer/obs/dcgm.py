"""Our GPU series under dcgm-exporter's names and labels too, for dashboards made for it (Grafana 12239).

Names, units and labels: dcgm-exporter d5e5f51, default counters. Off unless the stack asks for it: whoever sums both
families counts twice. What NVML cannot tell (DCGM_FI_PROF_*, profiling counters) has no alias.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import Metric

MIB = 1 << 20
LABELS = ("gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION")
# metric -> label values -> value, as NodeState keeps them
Values = Mapping[str, Mapping[tuple[str, ...], float]]


@dataclass(frozen=True)
class Alias:
    name: str
    metric: str  # ours
    factor: float  # ours times this is DCGM's
    help: str
    kind: str = "gauge"


ALIASES = (
    Alias("DCGM_FI_DEV_SM_CLOCK", "trainer_gpu_clock_hertz", 1e-6, "SM clock (MHz)."),
    Alias("DCGM_FI_DEV_GPU_TEMP", "trainer_gpu_temperature_celsius", 1, "GPU temperature (C)."),
    Alias("DCGM_FI_DEV_MEMORY_TEMP", "trainer_gpu_memory_temperature_celsius", 1, "Memory temperature (C)."),
    # A counter there; "unknown" here, since Prometheus' text form would add _total to a counter's name.
    Alias(
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
        "trainer_gpu_energy_joules_total",
        1000,
        "Energy (mJ).",
        "unknown",
    ),
    Alias("DCGM_FI_DEV_POWER_USAGE", "trainer_gpu_power_watts", 1, "Power draw (W)."),
    Alias("DCGM_FI_DEV_GPU_UTIL", "trainer_gpu_utilization_ratio", 100, "GPU utilization (%)."),
    Alias("DCGM_FI_DEV_FB_USED", "trainer_gpu_memory_used_bytes", 1 / MIB, "Memory used (MiB)."),
    Alias("DCGM_FI_DEV_FB_FREE", "trainer_gpu_memory_free_bytes", 1 / MIB, "Memory free (MiB)."),
)


def families(values: Values, host: str | None = None) -> Iterator[Metric]:
    """Aliases of what is there; a GPU that ours say nothing of has no alias either."""
    host = host or socket.gethostname()
    known = {(gpu, uuid): (name, bus) for gpu, uuid, name, bus, *_ in values.get("trainer_gpu_info", {})}
    driver = next((labels[0] for labels in values.get("trainer_nvidia_driver_info", {})), "")
    for alias in ALIASES:
        family = Metric(alias.name, alias.help, alias.kind)
        for key, value in sorted(values.get(alias.metric, {}).items()):
            gpu, uuid = key[:2]
            if (gpu, uuid) not in known:
                continue
            name, bus = known[gpu, uuid]
            labels = (gpu, uuid, bus, f"nvidia{gpu}", name, host, driver)
            sample: dict[str, str] = dict(zip(LABELS, labels, strict=True))
            family.add_sample(alias.name, sample, value * alias.factor)
        if family.samples:
            yield family
