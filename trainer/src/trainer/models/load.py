"""From ``training.model`` to a module: a built-in name, or ``package.module:factory`` from the user's wheel.

The contract of a user's model, all of it:

- ``factory(dataset, **model_args) -> torch.nn.Module``. ``dataset`` is a ``trainer.data.dataset.DatasetInfo``
  (kind "images" or "tokens", classes, sample_shape, vocabulary, sequence_length, numbers of samples);
  ``model_args`` are the run's, as they stand there.
- Images: ``forward(images)`` takes float32 [b, c, h, w] in 0..1 and returns logits [b, classes].
- Tokens: ``forward(tokens)`` takes int64 [b, t] and returns logits [b, t, vocabulary], where those at a place
  depend on no later token.
- Optionally a method ``loss(outputs, targets)`` that returns a scalar mean over the targets; ``targets`` are
  int64 [b], of tokens [b, t]. Without it the loss is cross-entropy. With it ``forward`` may return what it likes;
  evaluation reports an accuracy only where that is logits [b, classes].
- A target of -100 counts for nothing; a loss is a mean over the others (`IGNORED`).
- Optionally a method ``blocks()`` that returns the modules that repeat, in their order: activation checkpointing
  and FSDP take them as units. Optionally ``training_flops()``, of one sample forward and backward, for MFU; without
  it the operations are counted.
- Every parameter that asks for a gradient takes part in each forward pass: replicas wait for the gradients of all.
- Everything the module keeps between steps is in its ``state_dict``, as tensors: that is what a checkpoint holds.
- The result does not depend on how many ranks share a global batch, as long as each sample stands for itself: the
  loss is a mean over targets, and nothing looks across the batch (batch normalisation, contrastive losses).
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
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from ..contracts.run import TrainingConfig
from ..data.dataset import DatasetInfo
from ..errors import ConfigurationError
from . import gpt, resnet, tiny_vision

BUILT_IN: dict[str, Callable[..., nn.Module]] = {
    "tiny-vision": tiny_vision.build,
    "resnet18": resnet.build_18,
    "resnet50": resnet.build_50,
    "gpt": gpt.build,
}
IGNORED = -100  # a target that does not count; torch's own number for it

# Mean over the targets that count; 0 where there is none.
LossFunction = Callable[[Any, torch.Tensor], torch.Tensor]


def build_model(
    training: TrainingConfig,
    dataset: DatasetInfo,
    packages: Path | None = None,
    if_absent: str = "the run names no userWheel: start it with --wheel FILE",
) -> nn.Module:
    """The run's model, proven to take the dataset's samples. ``packages``: where the user's wheel lies.

    Raises ConfigurationError with the reason; where the model's module is not there, with ``if_absent`` as what to
    do. The trace of a fault in the user's code goes to standard error.
    """
    factory = _factory(training.model, packages, if_absent)
    try:
        model = factory(dataset, **training.model_args)
    except Exception as error:
        if training.model not in BUILT_IN:
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
    for key, value in model.state_dict().items():
        if not isinstance(value, torch.Tensor):
            # It would be met at the first save, or, worse, when the checkpoint is loaded (YOLOX 1906).
            raise ConfigurationError(
                f'model "{training.model}" keeps {type(value).__name__} under {key} in its state_dict; '
                "a checkpoint holds tensors alone: make it a buffer, or keep it out"
            )
    return model


def _factory(name: str, packages: Path | None, if_absent: str) -> Callable[..., Any]:
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
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise ConfigurationError(
                f'model "{name}": there is no module {error.name}; {if_absent}'
            ) from error
        traceback.print_exc()  # the module is there: what it says on the way is its author's to read
        raise ConfigurationError(
            f'model "{name}": cannot import {module_name}: {type(error).__name__}: {error}'
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ConfigurationError(f'model "{name}": {module_name} has no callable "{attribute}"')
    return factory


def loss_function(model: nn.Module, smoothing: float = 0) -> LossFunction:
    """The model's own ``loss``, else cross-entropy. Raises ConfigurationError where ``smoothing`` meets the former."""
    own = getattr(model, "loss", None)
    if not callable(own):
        return partial(cross_entropy, smoothing=smoothing) if smoothing else cross_entropy
    if smoothing:
        raise ConfigurationError("training.labelSmoothing: the model has a loss of its own; smooth it there")
    return cast(LossFunction, own)


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor, smoothing: float = 0) -> torch.Tensor:
    """Logits [b, classes] and targets [b], or logits [b, t, vocabulary] and targets [b, t]: a scalar mean."""
    logits, flat = outputs.reshape(-1, outputs.shape[-1]), targets.reshape(-1)
    total = nn.functional.cross_entropy(
        logits, flat, ignore_index=IGNORED, reduction="sum", label_smoothing=smoothing
    )
    return total / (flat != IGNORED).sum().clamp(min=1)


def targets_that_count(targets: torch.Tensor) -> int:
    """How many of the targets a loss is the mean of."""
    return int((targets != IGNORED).sum())


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The modules that repeat; none: the model does not tell."""
    tell = getattr(model, "blocks", None)
    return list(cast("list[nn.Module]", tell())) if callable(tell) else []


def has_own_loss(model: nn.Module) -> bool:
    return callable(getattr(model, "loss", None))


def _try_out(model: nn.Module, name: str, dataset: DatasetInfo) -> None:
    """One forward pass before the first step: a wrong shape is told here, not by a broken collective."""
    batch = 2
    tokens = dataset.kind == "tokens"
    shape = (batch, *dataset.sample_shape)
    targets = torch.zeros(shape if tokens else batch, dtype=torch.int64)
    expected = (*shape, dataset.classes) if tokens else (batch, dataset.classes)
    training = model.training
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        model.eval()
        try:
            outputs = model(torch.zeros(shape, dtype=torch.int64) if tokens else torch.rand(shape))
            fits = has_own_loss(model) or tuple(outputs.shape) == expected
            loss = loss_function(model)(outputs, targets) if fits else torch.zeros(())
        except Exception as error:
            traceback.print_exc()
            raise ConfigurationError(
                f'model "{name}" fails on {dataset.kind} of {list(shape)}: {type(error).__name__}: {error}'
            ) from error
        finally:
            model.train(training)
    if not fits:
        what = f"a vocabulary of {dataset.classes}" if tokens else f"{dataset.classes} classes"
        raise ConfigurationError(
            f'model "{name}" returns {list(outputs.shape)} for a batch of {batch}; '
            f"logits of {list(expected)} are needed ({dataset.name} has {what})"
        )
    if not has_own_loss(model) and not torch.isfinite(outputs).all():
        raise ConfigurationError(f'model "{name}" returns numbers that are not finite, before any training')
    if loss.ndim != 0 or not torch.isfinite(loss):
        raise ConfigurationError(
            f'model "{name}": its first loss is {loss.tolist()}; a finite scalar is needed'
        )
