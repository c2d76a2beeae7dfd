"""Decoding PNG and JPEG files with Pillow, which only this needs (extra ``images``)."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ConfigurationError, DatasetError

SUFFIXES = (".png", ".jpg", ".jpeg")


def need_pillow() -> None:
    """Raises ConfigurationError where Pillow is missing."""
    try:
        import PIL  # noqa: F401
    except ImportError as error:
        raise ConfigurationError(
            "PNG and JPEG files need Pillow; install it beside the trainer: pip install 'gpu-trainer[images]'"
        ) from error


def decode(
    source: Path | bytes, where: str, size: int | None = None, channels: int = 3
) -> np.ndarray[Any, Any]:
    """uint8 [channels, h, w] as a viewer shows it (EXIF orientation applied), 3: RGB, 1: grey.

    ``size``: the middle square, scaled to size x size pixels; none: as it is. Raises DatasetError naming ``where``
    for a file that is cut off, broken or no image.
    """
    from PIL import Image, ImageOps

    try:
        # Told by its bytes, whatever the file is named; of Pillow's other formats some start programs (EPS).
        file = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(file, formats=("PNG", "JPEG")) as opened:
            image = ImageOps.exif_transpose(opened).convert("RGB" if channels == 3 else "L")
            if size is not None:
                image = ImageOps.fit(image, (size, size), Image.Resampling.BILINEAR)
            pixels = np.asarray(image, dtype=np.uint8)
    except (
        Exception
    ) as error:  # what its parsers meet in a broken file: struct.error, IndexError, zlib.error, ...
        raise DatasetError(f"{where}: not a readable image: {' '.join(str(error).split())}") from error
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if channels == 3 else pixels[None])
