"""Which GPUs a process may see, by UUID: an index means another GPU to NVML than to CUDA, a UUID never does."""

from __future__ import annotations

from ..errors import ConfigurationError
from .nvml import Nvml, NvmlUnavailable


def by_uuid(indices: str, nvml: Nvml | None = None) -> str:
    """``0,1`` in NVML's order as a value for CUDA_VISIBLE_DEVICES; raises ConfigurationError."""
    try:
        wanted = [int(index) for index in indices.split(",")]
    except ValueError:
        raise ConfigurationError(f'--devices "{indices}": must be numbers with commas, such as 0,1') from None
    if len(set(wanted)) < len(wanted):
        raise ConfigurationError(f'--devices "{indices}": names a GPU twice')
    try:
        readings = {reading.index: reading for reading in (nvml or Nvml()).readings()}
    except NvmlUnavailable as error:
        raise ConfigurationError(f"--devices {indices}: no GPU can be seen here: {error}") from error
    for index in wanted:
        if index not in readings or readings[index].lost:
            known = ", ".join(str(known) for known, reading in readings.items() if not reading.lost)
            raise ConfigurationError(
                f"--devices {indices}: there is no GPU {index}; there is {known or 'none'}"
            )
    return ",".join(readings[index].uuid for index in wanted)
