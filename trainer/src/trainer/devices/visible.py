"""Which GPUs CUDA sees, and in which order, as far as that can be known without CUDA.

CUDA numbers by speed unless CUDA_DEVICE_ORDER is PCI_BUS_ID, NVML always by bus; CUDA_VISIBLE_DEVICES may hold
numbers, the beginning of a UUID, or a MIG part's UUID (pytorch PR 94568, vllm PR 6582). A metric that is joined by
number can so be another GPU's. (CUDA programming guide, environment variables.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .reading import GpuReading


def visible_uuids(readings: Sequence[GpuReading], environment: Mapping[str, str]) -> list[str] | None:
    """UUIDs in CUDA's order. None: it cannot be told, since the GPUs differ and CUDA's order is by speed."""
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    by_bus = environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len({r.name for r in readings}) < 2
    everything = [reading.uuid for reading in readings]
    if wanted is None:
        return everything if by_bus else None
    known = everything + [part.uuid for reading in readings for part in reading.mig or ()]
    found: list[str] = []
    for item in map(str.strip, wanted.split(",")):
        if item.isdigit():
            if not by_bus:
                return None
            matches = everything[int(item) : int(item) + 1]
        else:
            matches = [uuid for uuid in known if item and uuid.startswith(item)]
        # CUDA stops at the first one that means no GPU, or no new one.
        if len(matches) != 1 or matches[0] in found:
            break
        found += matches
    return found
