"""From scaled sums to an optimizer step: unscale, correct the mean, measure, clip, step; in this order."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .parallel import place_of
from .pipeline import Pipeline
from .state import TrainState


@dataclass(frozen=True)
class Update:
    grad_norm: float  # of the whole gradient, before clipping; not finite: no weight was changed
    overflow: bool = False  # of fp16's scaled gradients: the scaler left the step out and lowered its scale


def update(
    state: TrainState, clip_norm: float | None, factor: float, pipeline: Pipeline | None = None
) -> Update:
    """One optimizer step. ``factor``: what all gradients are multiplied with first.

    The same on every rank: gradients are, or the norm is taken over all shards and stages.
    """
    state.scaler.unscale_(state.optimizer)
    groups = _alike(state.model.parameters())
    if factor != 1:
        for group in groups:
            torch._foreach_mul_(group, factor)  # pyright: ignore[reportPrivateImportUsage]
    if pipeline is None:
        norm = math.hypot(*(_norm(group) for group in groups))
    else:
        mine = (one for one in state.model.parameters() if one is not pipeline.stage.counted_elsewhere)
        norm = pipeline.norm(math.hypot(*(_norm(group) for group in _alike(mine))))
    finite = math.isfinite(norm)
    if finite and clip_norm is not None and norm > clip_norm:
        for group in groups:
            torch._foreach_mul_(group, clip_norm / norm)  # pyright: ignore[reportPrivateImportUsage]
    fp16 = state.scaler.is_enabled()
    if finite or fp16:
        state.scaler.step(state.optimizer)
        state.scaler.update()
    return Update(norm, overflow=fp16 and not finite)


def _norm(gradients: list[torch.Tensor]) -> float:
    norm = nn.utils.get_total_norm(gradients)
    return float(norm.full_tensor() if isinstance(norm, DTensor) else norm)


def _alike(parameters: Iterable[nn.Parameter]) -> list[list[torch.Tensor]]:
    """Their gradients by where they lie."""
    groups: dict[Any, list[torch.Tensor]] = {}
    for gradient in (parameter.grad for parameter in parameters if parameter.grad is not None):
        groups.setdefault(place_of(gradient), []).append(gradient)
    return list(groups.values())


def first_fault(model: nn.Module) -> str:
    """Where the first number is that is none: the weight itself, else its gradient; "" where all are finite."""
    for name, parameter in model.named_parameters():
        for what, values in (("parameter", parameter), ("gradient of", parameter.grad)):
            if values is not None and not bool(torch.isfinite(_local(values.detach())).all()):
                return f"{what} {name}"
    return ""


def _local(values: torch.Tensor) -> torch.Tensor:
    return values.to_local() if isinstance(values, DTensor) else values
