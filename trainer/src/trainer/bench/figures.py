"""Measurements as the documents that a self-check reports, with the floor and peak of the very device beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..devices.floors import GpuFloors, floors_for
from ..devices.reading import GpuReading, reading_of
from ..devices.sampler import Load
from ..errors import ConfigurationError
from ..selfcheck.report import AllReduceFigure, LoadFigure, MatmulFigure, MemoryFigure
from ..selfcheck.torch_build import TorchDevice
from .allreduce import AllReduceMeasured
from .matmul import Measured, can_run, native_dtypes
from .memory import MemoryMeasured
from .network import allreduce_bound, allreduce_floor
from .timing import spread_ratio


def choose_dtypes(device: TorchDevice, asked: Sequence[str] | None) -> list[str]:
    """Those asked for, or all that the device has hardware for. Raises ConfigurationError for what it cannot do."""
    if not asked:
        return native_dtypes(device.device, device.capability)
    for dtype in asked:
        if not can_run(dtype, device.device, device.capability):
            name = "a CPU" if device.device == "cpu" else device.name
            raise ConfigurationError(f"{name} cannot multiply in {dtype}; leave --dtype {dtype} out")
    return list(asked)


def row_of(device: TorchDevice, readings: Sequence[GpuReading]) -> tuple[GpuReading | None, GpuFloors | None]:
    """This device's reading and its row of peaks and floors; a MIG part or a fraction of a GPU has no row."""
    reading = reading_of(device.uuid, readings)
    if reading is None or reading.mig:
        return reading, None
    return reading, floors_for(reading.pci_device_id, reading.name, reading.memory_total_bytes)


def matmul_figures(
    measured: Sequence[Measured],
    devices: Sequence[TorchDevice],
    readings: Sequence[GpuReading],
    floors: Mapping[str, float],
) -> list[MatmulFigure]:
    """``floors`` (dtype -> TFLOPS) go before the table of the GPU."""
    by_device = {device.device: device for device in devices}
    figures = []
    for found in measured:
        device = by_device[found.device]
        reading, row = row_of(device, readings)
        figures.append(
            MatmulFigure(
                device=found.device,
                name=device.name,
                pci_device_id=reading.pci_device_id if reading else None,
                pci_subsystem_id=reading.pci_subsystem_id if reading else None,
                dtype=found.dtype,
                emulated=found.dtype not in native_dtypes(device.device, device.capability),
                n=found.n,
                repeats=len(found.seconds),
                tflops_median=found.tflops_median,
                tflops_min=found.tflops(max(found.seconds)),
                tflops_max=found.tflops(min(found.seconds)),
                spread_ratio=spread_ratio(found.seconds),
                error=min(found.error, 1e308) if found.finite else 1e308,  # JSON knows no infinity
                tolerance=found.tolerance,
                repeatable=found.repeatable,
                digest=found.digest,
                floor_tflops=floors.get(found.dtype, row.floor.get(found.dtype) if row else None),
                peak_tflops=row.peak.get(found.dtype) if row else None,
                power_limit_watts=reading.power_limit_watts if reading else None,
            )
        )
    return figures


def load_figures(loads: Mapping[int, Load]) -> list[LoadFigure]:
    return [
        LoadFigure(
            gpu=gpu,
            clock_hertz=load.clock_hertz,
            power_watts=load.power_watts,
            power_limit_watts=load.power_limit_watts,
            temperature_celsius=load.temperature_celsius,
            held_by=tuple(load.held_by()),
            pcie=f"gen {load.pcie[0]} x{load.pcie[1]}" if load.pcie else None,
        )
        for gpu, load in sorted(loads.items())
    ]


def load_by_device(
    load: Sequence[LoadFigure], devices: Sequence[TorchDevice], readings: Sequence[GpuReading]
) -> dict[str, LoadFigure]:
    """torch's device -> its GPU's load; joined by UUID, since CUDA and NVML may number GPUs differently."""
    by_gpu = {figure.gpu: figure for figure in load}
    return {
        device.device: by_gpu[reading.index]
        for device in devices
        if (reading := reading_of(device.uuid, readings)) and reading.index in by_gpu
    }


def memory_figures(
    measured: Sequence[MemoryMeasured], devices: Sequence[TorchDevice], readings: Sequence[GpuReading]
) -> list[MemoryFigure]:
    by_device = {device.device: device for device in devices}
    figures = []
    for found in measured:
        _, row = row_of(by_device[found.device], readings)
        memory = row.memory if row else None
        figures.append(
            MemoryFigure(
                device=found.device,
                copied_bytes=found.copied_bytes,
                repeats=len(found.seconds),
                gigabytes_per_second=found.gigabytes_per_second,
                spread_ratio=spread_ratio(found.seconds),
                exact=found.exact,
                floor_gigabytes_per_second=memory.floor if memory else None,
                floor_warns_only=memory.warn_only if memory else False,
            )
        )
    return figures


def allreduce_figures(
    measured: AllReduceMeasured,
    devices: Sequence[TorchDevice],
    readings: Sequence[GpuReading],
    node_gigabytes_per_second: float | None,
) -> list[AllReduceFigure]:
    """``node_gigabytes_per_second``: of the node's own NICs. Over gloo nothing is held to a bound."""
    bound, over_nccl = None, measured.backend == "nccl"
    if over_nccl:
        _, row = row_of(devices[0], readings)
        whole = measured.nodes > 1 or measured.ranks >= 8  # the table's figure is of all GPUs of a node
        nvlink = row.nvlink_bus_gigabytes_per_second if row and whole else None
        bound = allreduce_bound(measured.nodes, measured.ranks, node_gigabytes_per_second, nvlink)
    return [
        AllReduceFigure(
            backend=measured.backend,
            ranks=measured.ranks,
            nodes=measured.nodes,
            message_bytes=size.size_bytes,
            repeats=len(size.seconds),
            bus_gigabytes_per_second=size.bus_gigabytes_per_second,
            spread_ratio=spread_ratio(size.seconds),
            exact=size.exact,
            bound_gigabytes_per_second=bound,
            floor_gigabytes_per_second=allreduce_floor(size.size_bytes, bound) if over_nccl else None,
            network=measured.nccl.network if measured.nccl else None,
        )
        for size in measured.sizes
    ]
