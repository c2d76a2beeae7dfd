"""How much of the devices' peak the model's own arithmetic is (MFU), where the peak is known."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from ..data.dataset import DatasetInfo
from ..devices.floors import peak_tflops
from ..devices.nvml import Nvml, NvmlUnavailable
from .precision import Precision

FORWARD_AND_BACKWARD = 3  # the backward pass is two forward passes: for the inputs and for the weights


def training_flops(model: nn.Module, info: DatasetInfo) -> float:
    """Operations of one sample, forward and backward: the model's ``training_flops()``, else counted in a forward
    pass of one sample (matrix products, convolutions, attention; what is done again for checkpointing is none)."""
    tell = getattr(model, "training_flops", None)
    if callable(tell):
        return float(tell())  # type: ignore[arg-type]
    device = next(model.parameters()).device
    shape, training = (1, *info.sample_shape), model.training
    tokens = info.kind == "tokens"
    inputs = torch.zeros(shape, dtype=torch.int64 if tokens else torch.float32, device=device)
    model.eval()
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            model(inputs)
    finally:
        model.train(training)
    return float(FORWARD_AND_BACKWARD * counter.get_total_flops())


def peak_flops(device: torch.device, precision: Precision) -> float | None:
    """Of this rank's GPU by its PCI device id, operations a second; None on a CPU and where it is not known.

    The GPU half has not run on a GPU yet.
    """
    if device.type != "cuda":
        return None
    uuid = str(torch.cuda.get_device_properties(device).uuid)
    with contextlib.suppress(NvmlUnavailable):
        for reading in Nvml().readings():
            if reading.uuid.removeprefix("GPU-") == uuid.removeprefix("GPU-"):  # CUDA's order is not NVML's
                tflops = peak_tflops(reading.pci_device_id, precision.name, reading.name)
                return tflops * 1e12 if tflops else None
    return None


class Mfu:
    """``flops``: of one sample; ``peaks``: of each device of the world, which may differ; None: not known."""

    def __init__(self, flops: float, peaks: Sequence[float | None]) -> None:
        known = [peak for peak in peaks if peak is not None]
        self._flops, self._peak = flops, sum(known) if len(known) == len(peaks) else None
        self.fault: str | None = None  # told once: a peak that is exceeded is not the peak

    def of(self, samples: int, seconds: float) -> float | None:
        """0 to 1; None: the peak is not known, or is wrong."""
        if self._peak is None or self.fault:
            return None
        ratio = self._flops * samples / seconds / self._peak
        if ratio > 1:
            self.fault = (
                f"MFU would be {ratio:.0%}: the peak of {self._peak / 1e12:g} TFLOP/s of all devices by the table "
                "(gpu_floors.json) is too low for one of them, or its id is another's; it is not told any more"
            )
            return None
        return ratio
