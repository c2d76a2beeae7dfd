"""What a GPU must reach in the matrix benchmark, by PCI device id: dated data, not a guess.

A device id that is not in the table has no floor: "unknown" is an answer, and no node fails for it.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

TABLE = Path(__file__).with_name("gpu_floors.json")


class GpuFloors(BaseModel):
    """TFLOPS by dtype (fp32, tf32, fp16, bf16). A dtype that is missing in ``floor`` is emulated or does not exist."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    name: str
    families: tuple[str, ...]  # of EC2 instance types
    pci_device_ids: tuple[str, ...]
    compute_capability: str
    peak: dict[str, float]  # of the datasheet, dense
    measured: dict[str, float]  # the lowest published figure of a healthy GPU
    floor: dict[str, float]
    warn_only: tuple[str, ...]  # dtypes whose floor rests on no measurement of this GPU


@functools.lru_cache(maxsize=1)
def table() -> tuple[GpuFloors, ...]:
    return tuple(GpuFloors.model_validate(row) for row in json.loads(TABLE.read_text())["gpus"])


def floors_for(pci_device_id: str | None) -> GpuFloors | None:
    wanted = (pci_device_id or "").upper()
    return next((row for row in table() if wanted in row.pci_device_ids), None)
