"""Number formats: fp32 on a CPU; on a GPU bf16 where the hardware has it, else fp16 with a gradient scaler.

The GPU half of this module has not run on a GPU yet.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import torch

from .world import World

PrecisionName = Literal["fp32", "bf16", "fp16"]

# Below this compute capability bf16 is emulated, about ten times slower than fp16 (T4, V100).
BF16_CAPABILITY = (8, 0)


@dataclass(frozen=True)
class Precision:
    name: PrecisionName
    device_type: str

    def autocast(self) -> torch.autocast | nullcontext[None]:
        """Around the forward pass and the loss."""
        if self.name == "fp32":
            return nullcontext()
        dtype = torch.bfloat16 if self.name == "bf16" else torch.float16
        return torch.autocast(self.device_type, dtype)

    def scaler(self) -> torch.amp.GradScaler:
        """For fp16; with the others it passes everything through, so that the loop has one way only."""
        return torch.amp.GradScaler(self.device_type, enabled=self.name == "fp16")


def agree_on_precision(wanted: Literal["auto", "fp32", "bf16", "fp16"], world: World) -> Precision:
    """`resolve_precision` for the oldest GPU of the world: ranks whose gradients are scaled do not mix with others.
    Collective."""
    if world.device.type == "cpu":
        return resolve_precision(wanted, "cpu", None)
    capabilities = world.everybodys(torch.cuda.get_device_capability(world.device))
    return resolve_precision(wanted, "cuda", min(capabilities))


def resolve_precision(
    wanted: Literal["auto", "fp32", "bf16", "fp16"], device_type: str, capability: tuple[int, int] | None
) -> Precision:
    """``capability``: of the GPU, None on a CPU. ``auto`` never picks half precision on a CPU, where it is
    emulated, slow and was once wrong; asked for by name it is used."""
    if wanted != "auto":
        return Precision(wanted, device_type)
    if device_type == "cpu" or capability is None:
        return Precision("fp32", device_type)
    return Precision("bf16" if capability >= BF16_CAPABILITY else "fp16", device_type)
