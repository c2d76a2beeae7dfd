"""Two sample datasets that small models learn in minutes, the same bytes for the same seed.

``shapes``: coloured shapes on a noisy ground. ``sums``: sentences of arithmetic, byte by byte.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..contracts.manifests import DatasetFacts
from .importing import text_facts, tokens_of
from .pack import FACTS, TokenPacker, new_folder

CLASSES = ("circle", "square", "triangle", "cross", "ring", "stripes")
SIZE_PIXELS = 24
SHARD_SAMPLES = 1024


def _masks(
    labels: np.ndarray[Any, Any], rng: np.random.Generator, pixels: int
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """One shape a label at a random place and size: [n, pixels, pixels]."""
    n = len(labels)
    radius = rng.uniform(0.2, 0.38, (n, 1, 1))
    centre = rng.uniform(-0.12, 0.12, (2, n, 1, 1))
    axis = np.linspace(-0.5, 0.5, pixels)
    y, x = axis[None, :, None] - centre[0], axis[None, None, :] - centre[1]
    distance, square = np.hypot(x, y), np.maximum(abs(x), abs(y))
    shapes = np.stack(
        [
            distance < radius,
            square < radius * 0.85,
            (abs(x) < (y + radius) * 0.6) & (y < radius * 0.8),
            (np.minimum(abs(x), abs(y)) < radius * 0.3) & (square < radius),
            (distance < radius) & (distance > radius * 0.6),
            (square < radius) & (np.floor((y + 0.5) * pixels / 2) % 2 == 0),
        ]
    )
    return shapes[labels, np.arange(n)]


def images_of(labels: np.ndarray[Any, Any], rng: np.random.Generator) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """uint8 [n, 3, SIZE_PIXELS, SIZE_PIXELS]: a bright shape on a dark ground, noise over both."""
    n = len(labels)
    mask = _masks(labels, rng, SIZE_PIXELS)[:, None]
    colour, ground = rng.uniform(110, 255, (n, 3, 1, 1)), rng.uniform(0, 90, (n, 3, 1, 1))
    noise = rng.normal(0, 18, (n, 3, SIZE_PIXELS, SIZE_PIXELS))
    return np.clip(np.where(mask, colour, ground) + noise, 0, 255).astype(np.uint8)


def make_sample(target: Path, samples: int = 4096, test_samples: int = 512, seed: int = 0) -> list[Path]:
    """Write ``train-*.npz`` and ``test-*.npz`` below ``target``, ready to be published; returns the files."""
    target.mkdir(parents=True, exist_ok=True)
    files = []
    for split, count in (("train", samples), ("test", test_samples)):
        for shard, first in enumerate(range(0, count, SHARD_SAMPLES)):
            n = min(SHARD_SAMPLES, count - first)
            rng = np.random.default_rng([seed, 0 if split == "train" else 1, shard])
            labels = rng.integers(0, len(CLASSES), n, dtype=np.int64)
            path = target / f"{split}-{shard:05d}.npz"
            np.savez(path, images=images_of(labels, rng), labels=labels)
            files.append(path)
    (target / FACTS).write_text(DatasetFacts(classes=len(CLASSES), class_names=list(CLASSES)).to_json())
    return files


_NUMBERS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight"),
    *("nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
)
_OPERATIONS = {"plus": np.add, "minus": np.subtract, "times": np.multiply}
DOCUMENT_SENTENCES = 8


def _document(rng: np.random.Generator) -> bytes:
    """Sentences such as ``seven minus two is five.``, each true."""
    lines = []
    while len(lines) < DOCUMENT_SENTENCES:
        name = str(rng.choice(list(_OPERATIONS)))
        a, b = (int(value) for value in rng.integers(0, 9, 2))
        result = int(_OPERATIONS[name](a, b))
        if 0 <= result < len(_NUMBERS):
            lines.append(f"{_NUMBERS[a]} {name} {_NUMBERS[b]} is {_NUMBERS[result]}.")
    return "\n".join(lines).encode()


def make_text_sample(
    target: Path, samples: int = 4096, test_samples: int = 512, seed: int = 0, sequence_length: int = 64
) -> None:
    """Write ``train-*.npy`` and ``test-*.npy`` with so many windows of ``sequence_length`` tokens."""
    with new_folder(target) as folder:
        packer = TokenPacker(folder, sequence_length=sequence_length)
        for split, count in (("train", samples), ("test", test_samples)):
            rng = np.random.default_rng([seed, 0 if split == "train" else 1])
            left = count * sequence_length + 1
            while left > 0:
                tokens = tokens_of(_document(rng))[:left]  # exactly as many windows as were asked for
                packer.add(split, tokens)
                left -= len(tokens)
        packer.finish(text_facts(sequence_length))
