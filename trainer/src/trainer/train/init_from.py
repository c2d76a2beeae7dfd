"""The weights that a fresh start begins with, for fine-tuning: of another run's best checkpoint or of a file."""

from __future__ import annotations

import fcntl
import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..contracts import keys
from ..errors import CheckpointError, ConfigurationError
from ..store import IntegrityError, MissingObjectError, Store
from .lineage import fetch_files, read_line
from .saved_state import SavedState, UnreadableError

RUN = "run:"
NAMED = 5  # of the names that do not fit


def fetch_weights(source: str, store: Store, bucket: str, folder: Path) -> dict[str, torch.Tensor]:
    """Name to tensor on the CPU. ``folder`` is where a run's checkpoint comes down to.

    Raises ConfigurationError (no such run or file, or nothing of the kind in it), CheckpointError, StoreError.
    """
    if not source.startswith(RUN):
        return _read(Path(source), f'training.initFrom "{source}"')
    run = source.removeprefix(RUN)
    line = read_line(store, bucket, run)
    best = line.best.value
    chosen = [
        manifest for manifest in line.manifests if best and manifest.step == best.step
    ] or line.manifests
    if not chosen:
        raise ConfigurationError(f'training.initFrom: run "{run}" has no checkpoint')
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "load.lock", "w") as lock:  # ranks of one node share the folder
            fcntl.flock(lock, fcntl.LOCK_EX)
            saved = fetch_files(store, bucket, chosen[0], folder)
    except (IntegrityError, MissingObjectError) as error:
        raise CheckpointError(f"training.initFrom: {keys.checkpoints(run)}: {error}") from error
    try:
        return SavedState(saved).weights()
    except UnreadableError as error:
        raise CheckpointError(f'training.initFrom: run "{run}", step {chosen[0].step}: {error}') from error


def _read(path: Path, where: str) -> dict[str, torch.Tensor]:
    if not path.is_file():
        raise ConfigurationError(f"{where}: there is no such file on this machine; run:NAME names a run")
    try:
        if path.suffix == ".safetensors":
            loaded: Any = _safetensors(path, where)
        else:
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError) as error:
        raise ConfigurationError(f"{where} cannot be read: {' '.join(str(error).split())[:200]}") from error
    if not isinstance(loaded, dict) or not all(isinstance(value, torch.Tensor) for value in loaded.values()):
        raise ConfigurationError(f"{where} holds no weights; a file is a model's state_dict: name to tensor")
    return loaded


def _safetensors(path: Path, where: str) -> dict[str, torch.Tensor]:
    try:
        from safetensors import SafetensorError  # pyright: ignore[reportMissingImports]
        from safetensors.torch import load_file  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ConfigurationError(
            f"{where}: reading it needs safetensors; pip install 'gpu-trainer[safetensors]', or give a .pt file"
        ) from error
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(str(error)) from error


def apply_weights(
    model: nn.Module,
    weights: dict[str, torch.Tensor],
    strict: bool,
    shapes: dict[str, torch.Size] | None = None,
) -> str | None:
    """Load them into the model. What did not fit, in one line; None: all did. ``shapes``: of the whole model's state,
    where ``model`` is a stage of it.

    Raises ConfigurationError with that line where ``strict``; then nothing was loaded.
    """
    own = shapes or {name: value.shape for name, value in model.state_dict().items()}
    faults = {
        "shape": [
            f"{name} {list(weights[name].shape)} for {list(shape)}"
            for name, shape in own.items()
            if name in weights and weights[name].shape != shape
        ],
        "missing": [name for name in own if name not in weights],
        "not in the model": [name for name in weights if name not in own],
    }
    text = "; ".join(f"{what}: {_some(names)}" for what, names in faults.items() if names)
    if text and strict:
        raise ConfigurationError(
            f"training.initFrom does not fit the model: {text}; training.initStrict: false takes what fits"
        )
    fitting = {name: value for name, value in weights.items() if own.get(name) == value.shape}
    if not fitting:
        raise ConfigurationError("training.initFrom has no weight that fits the model")
    model.load_state_dict(fitting, strict=False)
    return text or None


def _some(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
