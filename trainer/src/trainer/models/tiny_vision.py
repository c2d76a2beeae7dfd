"""``tiny-vision``: a small convolutional classifier that learns on any machine."""

from __future__ import annotations

import torch
from torch import nn

from ..data.dataset import DatasetInfo

GROUPS = 8


def _stage(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Group normalisation looks at one sample at a time: unlike with batch normalisation, the result does not
    depend on how many ranks a global batch is spread over."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel_size=3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(GROUPS, outputs),
        nn.ReLU(inplace=True),
    )


class TinyVision(nn.Module):
    """Images float [b, c, h, w] in 0..1 to logits [b, classes]; h and w at least 8."""

    def __init__(self, channels: int, classes: int, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _stage(channels, width, 2), _stage(width, 2 * width, 2), _stage(2 * width, 4 * width, 1)
        )
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(4 * width, classes))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(2 * images - 1).mean(dim=(2, 3)))


def build(dataset: DatasetInfo, width: int = 16, dropout: float = 0.0) -> nn.Module:
    """``width``: channels of the first stage, a multiple of 8; ``dropout``: share of features, 0: none."""
    if dataset.kind != "images":
        raise ValueError(f"{dataset.name} holds {dataset.kind}; this model takes images")
    if width < GROUPS or width % GROUPS:
        raise ValueError(f"width must be a multiple of {GROUPS}, not {width}")
    return TinyVision(dataset.sample_shape[0], dataset.classes, width, dropout)
