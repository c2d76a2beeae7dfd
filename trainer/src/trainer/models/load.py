"""From ``training.model`` to a module: a built-in name, or ``package.module:factory`` from the user's wheel.

The contract of a user's model, all of it:

- ``factory(dataset, **model_args) -> torch.nn.Module``. ``dataset`` is a ``trainer.data.dataset.DatasetInfo``
  (classes, sample_shape (c, h, w), numbers of samples); ``model_args`` are the run's, as they stand there.
- ``forward(images)`` takes float32 [b, c, h, w] in 0..1 and returns logits [b, classes].
- Optionally a method ``loss(outputs, targets)`` that returns a scalar mean over the batch; ``targets`` are
  int64 [b]. Without it the loss is cross-entropy. With it ``forward`` may return what it likes; evaluation
  reports an accuracy only where that is logits [b, classes].
- Everything the module keeps between steps is in its ``state_dict``: that is what a checkpoint holds.
- The result does not depend on how many ranks share a global batch, as long as each sample stands for itself: the
  loss is a mean over samples, and nothing looks across the batch (batch normalisation, contrastive losses).
- Dropout modules (nn.Dropout, Dropout1d, 2d, 3d) are replaced by ones whose masks are seeded by step and sample, at
  any world size the same; their inputs have the samples first (`trainer.models.dropout`). Random numbers of other
  making (nn.functional.dropout, dropout within nn.MultiheadAttention or nn.LSTM, AlphaDropout, torch.rand, numpy)
  cannot be seen: the generators are seeded anew by step and rank, so that a resumed run repeats them exactly where
  the world is of the same size, and draws others where it is not.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ..contracts.run import TrainingConfig
from ..data.dataset import DatasetInfo
from ..errors import ConfigurationError
from . import tiny_vision

BUILT_IN: dict[str, Callable[..., nn.Module]] = {"tiny-vision": tiny_vision.build}

LossFunction = Callable[[Any, torch.Tensor], torch.Tensor]


def build_model(training: TrainingConfig, dataset: DatasetInfo, packages: Path | None = None) -> nn.Module:
    """The run's model, proven to take the dataset's samples. ``packages``: where the user's wheel lies.

    Raises ConfigurationError with the reason; the trace of a fault in the user's code goes to standard error.
    """
    factory = _factory(training.model, packages)
    try:
        model = factory(dataset, **training.model_args)
    except Exception as error:
        traceback.print_exc()
        raise ConfigurationError(
            f'model "{training.model}": its factory raised {type(error).__name__}: {error}'
        ) from error
    if not isinstance(model, nn.Module):
        kind = type(model).__name__
        raise ConfigurationError(
            f'model "{training.model}": the factory returned {kind}, not a torch.nn.Module'
        )
    _try_out(model, training.model, dataset)
    return model


def _factory(name: str, packages: Path | None) -> Callable[..., Any]:
    if ":" not in name:
        if name not in BUILT_IN:
            known = ", ".join(sorted(BUILT_IN))
            raise ConfigurationError(
                f'model "{name}" is not built in (there is: {known}); your own is package.module:factory'
            )
        return BUILT_IN[name]
    module_name, _, attribute = name.partition(":")
    if packages is not None and str(packages) not in sys.path:
        # At the end: a user's package adds names, it does not take the trainer's or torch's place.
        sys.path.append(str(packages))
        importlib.invalidate_caches()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        traceback.print_exc()
        hint = "" if packages else "; the run names no userWheel"
        raise ConfigurationError(
            f'model "{name}": cannot import {module_name}: {type(error).__name__}: {error}{hint}'
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ConfigurationError(f'model "{name}": {module_name} has no callable "{attribute}"')
    return factory


def loss_function(model: nn.Module) -> LossFunction:
    """The model's own ``loss``, else cross-entropy."""
    own = getattr(model, "loss", None)
    return cast(LossFunction, own) if callable(own) else nn.functional.cross_entropy


def has_own_loss(model: nn.Module) -> bool:
    return callable(getattr(model, "loss", None))


def _try_out(model: nn.Module, name: str, dataset: DatasetInfo) -> None:
    """One forward pass before the first step: a wrong shape is told here, not by a broken collective."""
    batch = 2
    training = model.training
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model.eval()
        try:
            outputs = model(torch.rand(batch, *dataset.sample_shape))
            loss = loss_function(model)(outputs, torch.zeros(batch, dtype=torch.int64))
        except Exception as error:
            traceback.print_exc()
            shape = [batch, *dataset.sample_shape]
            raise ConfigurationError(
                f'model "{name}" fails on images of {shape}: {type(error).__name__}: {error}'
            ) from error
        finally:
            model.train(training)
    expected = (batch, dataset.classes)
    if not has_own_loss(model) and tuple(outputs.shape) != expected:
        raise ConfigurationError(
            f'model "{name}" returns {list(outputs.shape)} for a batch of {batch}; '
            f"logits of {list(expected)} are needed ({dataset.name} has {dataset.classes} classes)"
        )
    if loss.ndim != 0 or not torch.isfinite(loss):
        raise ConfigurationError(
            f'model "{name}": its first loss is {loss.tolist()}; a finite scalar is needed'
        )
