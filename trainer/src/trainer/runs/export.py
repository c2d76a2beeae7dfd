"""A checkpoint's weights as a safetensors file, which other programs read without running anything that is in it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, ConfigurationError
from ..part_file import fsync_dir, sha256_of


def export_safetensors(state: Path, target: Path, told: Mapping[str, str]) -> str:
    """Write the model's tensors of a checkpoint to ``target``, read them back and compare; the file's SHA-256.

    ``state`` is the folder of its files. ``told`` becomes the file's metadata. Tensors that are one in the model (tied
    weights) are written twice, for the format knows no other way. Raises ConfigurationError where torch or safetensors
    is missing, CheckpointError.
    """
    try:
        import torch
        from safetensors import SafetensorError  # pyright: ignore[reportMissingImports]
        from safetensors.torch import load_file, save_file  # pyright: ignore[reportMissingImports]

        from ..train.saved_state import SavedState, UnreadableError
    except ImportError as error:
        raise ConfigurationError(
            f"--safetensors needs {error.name}; pip install 'gpu-trainer[torch,safetensors]'"
        ) from error
    try:
        weights = SavedState(state).weights()
    except UnreadableError as error:
        raise CheckpointError(str(error)) from error
    tensors = {name: value.clone(memory_format=torch.contiguous_format) for name, value in weights.items()}
    part = target.with_name(target.name + ".part")
    try:
        save_file(tensors, part, metadata={"format": "pt", **told})
        back = load_file(part)
        if back.keys() != weights.keys() or any(not _same(back[name], weights[name]) for name in weights):
            raise CheckpointError(
                f"{part} does not give back the weights of {state}; the disk may be at fault"
            )
        with open(part, "rb") as file:
            os.fsync(file.fileno())
        digest = sha256_of(part)
        os.replace(part, target)
        fsync_dir(target.parent)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{target} cannot be written: {error}; give another folder with --to"
        ) from error
    finally:
        part.unlink(missing_ok=True)
    return digest


def _same(one: Any, other: Any) -> bool:
    """Bit for bit: a weight that is no number is the same where its bytes are."""
    import torch

    alike = (one.dtype, one.shape) == (other.dtype, other.shape)
    flat = [tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (one, other)]
    return alike and torch.equal(*flat)
