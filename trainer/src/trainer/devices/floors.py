"""What a GPU must reach in the benchmarks, by PCI device id: dated data, not a guess.

A GPU that is not in the table has no floor and no peak: "unknown" is an answer, and no node fails for it. Where the
device id is not known, the whole name decides, never a part of it: an A10G has half the rate of an A10.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

TABLE = Path(__file__).with_name("gpu_floors.json")
WHOLE_GPU_RATIO = (
    0.75  # of its memory: with less it is a fraction of a GPU (MIG, vGPU), which no floor is made for
)


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)


class MemoryFloor(_Row):
    """GB/s (10^9 bytes) of a copy, read and write counted. ``measured`` None: nothing was published."""

    peak: float
    measured: float | None = None
    floor: float
    warn_only: bool = False


class GpuFloors(_Row):
    """TFLOPS by dtype (fp32, tf32, fp16, bf16, fp8). A dtype that is missing in ``floor`` is emulated or does not
    exist there, or nothing is known of it."""

    name: str
    families: tuple[str, ...]  # of EC2 instance types; none: not sold there
    pci_device_ids: tuple[str, ...]
    names: tuple[str, ...]  # as NVML gives it
    compute_capability: str
    memory_gib: float
    peak: dict[str, float]  # of the datasheet, dense
    measured: dict[str, float]  # the lowest published figure of a healthy GPU
    floor: dict[str, float]
    warn_only: tuple[str, ...]  # dtypes whose floor rests on no measurement of this GPU
    memory: MemoryFloor | None = None
    nvlink_bus_gigabytes_per_second: float | None = None  # all-reduce over a whole node, published
    note: str = ""


class GpuTable(_Row):
    as_of: str
    unit: str
    source: str
    note: str
    gpus: tuple[GpuFloors, ...]


@functools.lru_cache(maxsize=1)
def whole_table() -> GpuTable:
    return GpuTable.model_validate(json.loads(TABLE.read_text()))


def table() -> tuple[GpuFloors, ...]:
    return whole_table().gpus


def floors_for(
    pci_device_id: str | None, name: str | None = None, memory_bytes: int | None = None
) -> GpuFloors | None:
    """The row of a whole GPU; None: nothing is known, or it is a fraction of one (told by ``memory_bytes``)."""
    if pci_device_id:
        row = next((row for row in table() if pci_device_id.upper() in row.pci_device_ids), None)
    else:
        row = next((row for row in table() if name and _words(name) in map(_words, row.names)), None)
    if row is None or memory_bytes is None:
        return row
    return row if memory_bytes / 2**30 >= WHOLE_GPU_RATIO * row.memory_gib else None


def peak_tflops(pci_device_id: str | None, dtype: str, name: str | None = None) -> float | None:
    """The datasheet's dense peak; None where it is not known: then there is no MFU either."""
    row = floors_for(pci_device_id, name)
    return row.peak.get(dtype) if row else None


def _words(name: str) -> frozenset[str]:
    return frozenset(name.lower().replace("-", " ").split()) - {"nvidia", "tesla"}
