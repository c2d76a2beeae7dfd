"""Optimizer and learning rate, by torch's own classes."""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

from ..contracts.run import Schedule, TrainingConfig

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


def make_optimizer(
    model: nn.Module, training: TrainingConfig, divided: bool = False
) -> torch.optim.Optimizer:
    """Weight decay is for matrices (and the kernels of convolutions) alone: biases and the scales of norms have one
    dimension. One fused kernel a group, unless parameters are ``divided`` among ranks: some are, some are not, and no
    one kernel takes both."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [one for one in parameters if one.ndim >= 2], "weight_decay": training.weight_decay},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    how: dict[str, bool] = {"foreach": False} if divided else {"fused": True}
    if training.optimizer == "sgd":
        momentum = training.momentum
        return torch.optim.SGD(
            groups, lr=training.learning_rate, momentum=momentum, nesterov=momentum > 0, **how
        )
    return torch.optim.AdamW(groups, lr=training.learning_rate, betas=training.betas, **how)


def make_scheduler(optimizer: torch.optim.Optimizer, training: TrainingConfig, total: int) -> LRScheduler:
    if training.schedule == "one-cycle":
        rise = training.warmup_steps / total or ONE_CYCLE_RISE
        return OneCycleLR(optimizer, training.learning_rate, total_steps=total, pct_start=rise)
    factor = partial(rate_factor, total=total, warmup=training.warmup_steps, kind=training.schedule)
    return LambdaLR(optimizer, factor)
