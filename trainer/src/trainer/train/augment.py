"""Flips and shifts of training images, on the device, seeded by step and sample as dropout is.

So a sample meets the same change at a step whichever rank takes it, at any world size, and a resume repeats it.
"""

from __future__ import annotations

import torch
from torch import nn

from ..contracts.run import AugmentSettings
from ..models.dropout import SampleKeys

_PLACE = -1  # among the numbers of dropout layers, which count from 0


def augment(images: torch.Tensor, settings: AugmentSettings, keys: SampleKeys) -> torch.Tensor:
    """Images uint8 [b, c, h, w] of the micro-batch that ``keys`` began with; the same shape."""
    if settings.flip and (flips := keys.of(_PLACE, 0, images.device)) is not None:
        images = torch.where((flips < 0)[:, None, None, None], images.flip(-1), images)
    pixels = settings.crop_pixels
    if pixels and (drawn := keys.of(_PLACE, 1, images.device)) is not None:
        images = _cropped(images, drawn, pixels)
    return images


def _cropped(images: torch.Tensor, drawn: torch.Tensor, pixels: int) -> torch.Tensor:
    """A window of the images' size from a black margin of so many pixels around them, at a place drawn by sample."""
    height, width = images.shape[2:]
    places = 2 * pixels + 1
    down, right = (drawn >> 40) % places, (drawn >> 16) % places  # int64 [b]
    rows = down[:, None] + torch.arange(height, device=images.device)  # [b, h]
    columns = right[:, None] + torch.arange(width, device=images.device)  # [b, w]
    padded = nn.functional.pad(images, (pixels,) * 4)
    sample = torch.arange(len(images), device=images.device)[:, None, None]
    # Indices apart from each other put their dimensions first: [b, h, w, c].
    return padded[sample, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
