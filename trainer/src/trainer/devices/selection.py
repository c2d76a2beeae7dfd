"""Which GPUs a run has, by UUID: an index means another GPU to NVML than to CUDA, a UUID never does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ConfigurationError
from .reading import GpuReading
from .visible import visible_uuids


def choose(
    names: str | None, processes: int | None, readings: Sequence[GpuReading], environment: Mapping[str, str]
) -> list[str] | None:
    """The GPUs of one run, a process each, as CUDA_VISIBLE_DEVICES takes them.

    ``names``: ``0,1`` in NVML's order, or UUIDs; None: the first that CUDA would see. ``readings``: of all GPUs.
    Empty: none can be seen. None: which ones they are cannot be told. Raises ConfigurationError.
    """
    allowed = visible_uuids(readings, environment)
    if names is None:
        if allowed and processes and processes > len(allowed):
            raise ConfigurationError(
                f"--processes {processes}: {len(allowed)} GPU{'s' if len(allowed) > 1 else ''} can be seen here, "
                "and each process takes one; --device cpu trains without them"
            )
        return allowed[: processes or 1] if allowed is not None else None
    chosen = [_one(name.strip(), names, readings) for name in names.split(",")]
    if len(set(chosen)) < len(chosen):
        raise ConfigurationError(f'--devices "{names}": names a GPU twice')
    if processes not in (None, len(chosen)):
        raise ConfigurationError(
            f"--devices {names} with {processes} process{'' if processes == 1 else 'es'}: each takes one GPU"
        )
    if len(chosen) > 1 and any(gpu.startswith("MIG-") for gpu in chosen):
        raise ConfigurationError(
            f"--devices {names}: CUDA shows a process one MIG part alone; start a run for each"
        )
    if "CUDA_VISIBLE_DEVICES" in environment and allowed is not None:
        for gpu in chosen:
            if gpu not in allowed:
                raise ConfigurationError(
                    f"--devices {names}: {gpu} is not among CUDA_VISIBLE_DEVICES, which leaves "
                    f"{', '.join(allowed) or 'none'}"
                )
    return chosen


def _one(name: str, asked: str, readings: Sequence[GpuReading]) -> str:
    there = [reading for reading in readings if not reading.lost]
    if name.isdigit():
        found = next((reading for reading in there if reading.index == int(name)), None)
        if found is None:
            known = ", ".join(str(reading.index) for reading in there)
            raise ConfigurationError(f"--devices {asked}: there is no GPU {name}; there is {known or 'none'}")
        if found.mig is not None:
            parts = ", ".join(part.uuid for part in found.mig)
            raise ConfigurationError(
                f"--devices {asked}: GPU {name} is divided (MIG): name one of its parts: {parts or 'there is none'}"
            )
        return found.uuid
    known_ids = [reading.uuid for reading in there]
    known_ids += [part.uuid for reading in there for part in reading.mig or ()]
    matches = [uuid for uuid in known_ids if name.startswith(("GPU-", "MIG-")) and uuid.startswith(name)]
    if len(matches) != 1:
        why = "is the beginning of several UUIDs" if matches else "is no GPU here"
        raise ConfigurationError(
            f'--devices "{asked}": {name or "an empty name"} {why}; numbers (0,1) or UUIDs, as nvidia-smi -L shows'
        )
    return matches[0]
