"""``resnet18`` and ``resnet50``: residual networks for images of any size (He and others 2015; the stride of a
bottleneck sits in its 3x3 convolution, as in the "v1.5" that published throughput figures are of)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import nn

from ..data.dataset import DatasetInfo

Norm = Literal["group", "sync-batch"]
NORMS: tuple[Norm, ...] = ("group", "sync-batch")
GROUPS = 32
SMALL_PIXELS = 64  # below it, the first layers keep the image's size: it would be gone before the last stage


def _normalisation(norm: Norm) -> Callable[[int], nn.Module]:
    """Group normalisation looks at one sample at a time, so that the result is the same however a global batch is
    spread over ranks and micro-batches. ``sync-batch`` takes its statistics over the micro-batches of all ranks:
    for weights that were trained so; the result then depends on world size and accumulation, and only GPUs do it."""
    if norm == "group":
        return lambda channels: nn.GroupNorm(min(GROUPS, channels // 2), channels)
    return nn.SyncBatchNorm


class Block(nn.Module):
    """[b, inputs, h, w] to [b, 4 * width or width, h / stride, w / stride]."""

    def __init__(
        self, inputs: int, width: int, stride: int, bottleneck: bool, norm: Callable[[int], nn.Module]
    ) -> None:
        super().__init__()
        outputs = 4 * width if bottleneck else width
        conv = partial(nn.Conv2d, bias=False)
        if bottleneck:
            self.body = nn.Sequential(
                *(conv(inputs, width, 1), norm(width), nn.ReLU(inplace=True)),
                *(conv(width, width, 3, stride=stride, padding=1), norm(width), nn.ReLU(inplace=True)),
                *(conv(width, outputs, 1), norm(outputs)),
            )
        else:
            self.body = nn.Sequential(
                *(conv(inputs, width, 3, stride=stride, padding=1), norm(width), nn.ReLU(inplace=True)),
                *(conv(width, outputs, 3, padding=1), norm(outputs)),
            )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride=stride), norm(outputs))
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.relu(self.body(images) + self.shortcut(images))


class ResNet(nn.Module):
    """Images float [b, c, h, w] in 0..1 to logits [b, classes]."""

    def __init__(
        self,
        channels: int,
        classes: int,
        depths: tuple[int, ...],
        width: int,
        bottleneck: bool,
        norm: Norm,
        small_images: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        make_norm = _normalisation(norm)
        kernel, stride = (3, 1) if small_images else (7, 2)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, kernel, stride=stride, padding=kernel // 2, bias=False),
            make_norm(width),
            nn.ReLU(inplace=True),
            nn.Identity() if small_images else nn.MaxPool2d(3, stride=2, padding=1),
        )
        stages: list[Block] = []
        inputs = width
        for stage, depth in enumerate(depths):
            for place in range(depth):
                outputs = width * 2**stage
                stages.append(Block(inputs, outputs, 2 if stage and not place else 1, bottleneck, make_norm))
                inputs = 4 * outputs if bottleneck else outputs
        self.stages = nn.Sequential(*stages)
        self.head = nn.Sequential(nn.Dropout(dropout), nn.Linear(inputs, classes))
        self._initialise()

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.stages(self.stem(2 * images - 1)).mean(dim=(2, 3)))

    def blocks(self) -> list[nn.Module]:
        return list(self.stages)

    def _initialise(self) -> None:
        """He's for convolutions; the last norm of each block begins at 0, so that a block begins as its shortcut
        (Goyal and others 2017)."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Block):
                nn.init.zeros_(module.body[-1].weight)  # type: ignore[arg-type]


def build(
    dataset: DatasetInfo,
    depths: tuple[int, ...],
    bottleneck: bool,
    width: int = 64,
    norm: Norm = "group",
    dropout: float = 0.0,
) -> nn.Module:
    """``width``: channels of the first stage, even; ``norm``: "group" or "sync-batch"; ``dropout``: share of the
    features before the last layer, 0: none."""
    if dataset.kind != "images":
        raise ValueError(f"{dataset.name} holds {dataset.kind}; this model takes images")
    if norm not in NORMS:
        raise ValueError(f'norm must be one of {", ".join(NORMS)}, not "{norm}"')
    if width < 2 or width % 2 or (width // 2 > GROUPS and width % GROUPS):
        raise ValueError(f"width must be even, and a multiple of {GROUPS} above {2 * GROUPS}, not {width}")
    if norm == "sync-batch" and not torch.cuda.is_available():
        raise ValueError('norm "sync-batch" needs GPUs, and there is none; use "group"')
    channels, *size = dataset.sample_shape
    small = min(size) < SMALL_PIXELS
    return ResNet(channels, dataset.classes, depths, width, bottleneck, norm, small, dropout)


build_18 = partial(build, depths=(2, 2, 2, 2), bottleneck=False)
build_50 = partial(build, depths=(3, 4, 6, 3), bottleneck=True)
