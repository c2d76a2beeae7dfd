"""Optimizer and learning rate, by torch's own classes."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from ..contracts.run import Schedule, TrainingConfig
from .parallel import place_of

ONE_CYCLE_RISE = (
    0.3  # share of the steps in which it rises where warmupSteps says nothing; torch's own default
)


def rate_factor(step: int, total: int, warmup: int, kind: Schedule) -> float:
    """What the learning rate is multiplied with at ``step`` (from 0); not for one-cycle.

    Rises linearly over ``warmup`` steps to 1; then stays there, or falls as half a cosine or as a line to 0 at
    ``total``. A pure function of the step, so that a resume cannot drift.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if kind == "constant":
        return 1.0
    done = min(1.0, (step - warmup) / max(1, total - warmup))
    return 1 - done if kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))


def make_optimizer(model: nn.Module, training: TrainingConfig) -> torch.optim.Optimizer:
    """Weight decay is for matrices (and the kernels of convolutions) alone: biases and the scales of norms have one
    dimension. A group has one place and so one fused kernel, or of SGD that is divided among ranks, for which torch has
    none, one kernel an operation."""
    groups: dict[Any, dict[str, Any]] = {}
    for parameter in (one for one in model.parameters() if one.requires_grad):
        decay = training.weight_decay if parameter.ndim >= 2 else 0.0
        group = groups.setdefault((decay, place_of(parameter)), {"params": [], "weight_decay": decay})
        group["params"].append(parameter)
    if training.optimizer == "sgd":
        momentum = training.momentum
        how = {"fused" if all(place is None for _, place in groups) else "foreach": True}
        return torch.optim.SGD(
            groups.values(), lr=training.learning_rate, momentum=momentum, nesterov=momentum > 0, **how
        )
    return torch.optim.AdamW(groups.values(), lr=training.learning_rate, betas=training.betas, fused=True)


def make_scheduler(optimizer: torch.optim.Optimizer, training: TrainingConfig, total: int) -> LRScheduler:
    if training.schedule == "one-cycle":
        rise = training.warmup_steps / total or ONE_CYCLE_RISE
        return OneCycleLR(optimizer, training.learning_rate, total_steps=total, pct_start=rise)
    factor = partial(rate_factor, total=total, warmup=training.warmup_steps, kind=training.schedule)
    return LambdaLR(optimizer, factor)
