"""A model of one's own: patches, a few mixing layers, and a loss with label smoothing.

Build the wheel with ``pip wheel --no-deps .`` and name ``my_model:build`` as the run's model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class PatchMixer(nn.Module):
    """Images [b, c, h, w] in 0..1 to logits [b, classes]; h and w must be multiples of ``patch``."""

    def __init__(
        self, shape: tuple[int, ...], classes: int, width: int, depth: int, patch: int, smoothing: float
    ) -> None:
        super().__init__()
        channels, height, width_pixels = shape
        tokens = (height // patch) * (width_pixels // patch)
        self.smoothing = smoothing
        self.patches = nn.Conv2d(channels, width, kernel_size=patch, stride=patch)
        self.across = nn.ModuleList(nn.Linear(tokens, tokens) for _ in range(depth))
        self.within = nn.ModuleList(
            nn.Sequential(
                nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
            )
            for _ in range(depth)
        )
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(images - 0.5).flatten(2)  # [b, width, tokens]
        for across, within in zip(self.across, self.within, strict=True):
            tokens = tokens + across(tokens)
            tokens = tokens + within(tokens.transpose(1, 2)).transpose(1, 2)
        return self.head(tokens.mean(dim=2))

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(outputs, targets, label_smoothing=self.smoothing)


def build(
    dataset: Any, width: int = 32, depth: int = 2, patch: int = 4, smoothing: float = 0.05
) -> nn.Module:
    """The factory that a run names; keyword arguments come from the run's ``modelArgs``."""
    return PatchMixer(dataset.sample_shape, dataset.classes, width, depth, patch, smoothing)
