"""Dropout that falls on the same elements of a sample whichever rank takes it, at any world size.

The mask of an element is a hash of (seed, step, sample number, layer, call, place in the sample): counters, no
generator, so that there is no state to save and nothing depends on how a global batch is spread over ranks and
micro-batches. Integers only: CPU and GPU agree bit for bit (a GPU has not run it yet). A call takes about
17 bytes of passing memory an element.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import torch
from torch import nn

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Kind:
    native: Callable[..., torch.Tensor]  # (inputs, p, training), for inputs whose samples cannot be told
    channel_dims: (
        int | None
    )  # zeroed together are channels [b, c] + this many dimensions; none: single elements


SEEDED: dict[type[nn.Module], Kind] = {
    nn.Dropout: Kind(nn.functional.dropout, None),
    nn.Dropout1d: Kind(nn.functional.dropout1d, 1),
    nn.Dropout2d: Kind(nn.functional.dropout2d, 2),
    nn.Dropout3d: Kind(nn.functional.dropout3d, 3),
}


def _signed(value: int) -> int:
    """The 64-bit pattern as torch's int64, whose arithmetic wraps."""
    return (value & (2**64 - 1)) - ((value & 2**63) << 1)


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_FIRST, _SECOND = _signed(0xBF58476D1CE4E5B9), _signed(0x94D049BB133111EB)


def _shifted(values: torch.Tensor, bits: int) -> torch.Tensor:
    """A logical shift; int64 shifts in copies of its sign."""
    return (values >> bits).bitwise_and_((1 << (64 - bits)) - 1)


def _high_mixed(values: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser (as in `trainer.data.order`) in place, without its last shift, which serves the low
    half only: read the high bits."""
    values.bitwise_xor_(_shifted(values, 30)).mul_(_FIRST)
    return values.bitwise_xor_(_shifted(values, 27)).mul_(_SECOND)


def _mixed(values: torch.Tensor) -> torch.Tensor:
    values = _high_mixed(values)
    return values.bitwise_xor_(_shifted(values, 31))


class SampleKeys:
    """Which samples are in the model right now; one for all dropout layers of a model."""

    def __init__(self, seed: int) -> None:
        self._seed, self._step = seed, 0
        self._numbers: torch.Tensor | None = None
        self._keys: torch.Tensor | None = None  # int64 [b], made when the first layer asks
        self.turn = 0  # counts micro-batches, so that a layer knows when its calls begin anew

    def begin(self, step: int, numbers: torch.Tensor) -> None:
        """Before the forward pass of a micro-batch: its step (from 0) and its samples' numbers, int64 [b]."""
        self._step, self._numbers, self._keys = step, numbers, None
        self.turn += 1

    def as_now(self) -> AbstractContextManager[None]:
        """A context in which the samples are those of now, whatever micro-batch has begun since: for a forward pass
        that is computed again."""
        kept = self._step, self._numbers, self._keys

        @contextmanager
        def again() -> Iterator[None]:
            present = self._step, self._numbers, self._keys
            self._step, self._numbers, self._keys = kept
            try:
                yield
            finally:
                self._step, self._numbers, self._keys = present

        return again()

    def of(self, layer: int, call: int, device: torch.device) -> torch.Tensor | None:
        """A key a sample, int64 [b]; None before the first `begin`."""
        if self._numbers is None:
            return None
        if self._keys is None or self._keys.device != device:
            run = torch.tensor([_signed(self._seed)], device=device)
            step = _mixed(_mixed(run).add_(_signed(self._step * _GOLDEN)))
            self._keys = _mixed(step + (self._numbers.to(device) + 1) * _GOLDEN)
        return _mixed(self._keys ^ _signed((layer * 2**20 + call + 1) * _GOLDEN))


class SeededDropout(nn.Module):
    """In place of a dropout module of torch; outside of training it does nothing.

    Where the input does not have the micro-batch's samples first (as [b, ...], or flattened as [b * k, ...] with
    the rows of a sample together), torch's own dropout draws from the rank's generator, and the log says so once.
    """

    def __init__(self, p: float, training: bool, kind: Kind, name: str, layer: int, keys: SampleKeys) -> None:
        super().__init__()
        self.p = p
        self._kind, self._name, self._layer, self._keys = kind, name, layer, keys
        self._turn, self._calls, self._told = -1, 0, False
        self.train(training)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if not self.training or self.p == 0:
            return inputs
        keep = self._keep(inputs)
        if keep is None:
            return self._kind.native(inputs, self.p, True)
        return inputs * keep * (1 / (1 - self.p) if self.p < 1 else 0.0)

    def extra_repr(self) -> str:
        return f"p={self.p}, seeded by step and sample"

    def _keep(self, inputs: torch.Tensor) -> torch.Tensor | None:
        """True where an element stays: bool, of the inputs' shape, or of one that broadcasts to it."""
        keys = self._keys.of(self._layer, self._call(), inputs.device)
        shape = inputs.shape
        if self._kind.channel_dims is not None:
            fits = inputs.dim() == 2 + self._kind.channel_dims
            shape = (*inputs.shape[:2], *(1,) * self._kind.channel_dims) if fits else ()
        if keys is None or not shape or shape[0] == 0 or shape[0] % len(keys):
            self._tell(inputs)
            return None
        elements = torch.Size(shape).numel() // len(keys)
        places = torch.arange(1, elements + 1, device=inputs.device).mul_(_GOLDEN)
        drawn = _high_mixed(keys[:, None] + places)  # int64 [b, elements], uniform over all of int64
        threshold = int(self.p * 2**64) - 2**63 if self.p < 1 else 2**63 - 1
        return (drawn >= threshold).view(shape)

    def _call(self) -> int:
        """How often this module was called for the micro-batch before: a module may serve several places.

        Activation checkpointing calls again within the backward pass and must meet the same mask, which cannot be
        told where there are several. Raises RuntimeError then: wrong gradients would be silent.
        """
        if self._turn != self._keys.turn:
            self._turn, self._calls = self._keys.turn, 0
        if torch._C._current_graph_task_id() != -1:  # in a backward pass, as torch.utils.checkpoint asks it
            if self._calls > 1:
                raise RuntimeError(
                    f"dropout {self._name} is called {self._calls} times a forward pass and computed again for the "
                    "backward pass: use one nn.Dropout a place with activation checkpointing"
                )
            return 0
        self._calls += 1
        return self._calls - 1

    def _tell(self, inputs: torch.Tensor) -> None:
        if not self._told:
            self._told = True
            _log.warning(
                "dropout %s: its input %s does not begin with the samples of the batch; it is drawn from this "
                "rank's generator, so that another world size draws other masks",
                self._name,
                list(inputs.shape),
            )


def seed_dropout(model: nn.Module, seed: int) -> SampleKeys:
    """Replace the model's dropout modules by ones that are seeded by step and sample; `SampleKeys.begin` sets both.

    Replaced are nn.Dropout, Dropout1d, Dropout2d and Dropout3d themselves. Left alone: AlphaDropout, a user's
    subclasses, and what is no module (nn.functional.dropout, the dropout within nn.MultiheadAttention or nn.LSTM).
    A layer's number is its place among the replaced ones in ``model.named_modules()``.
    """
    keys = SampleKeys(seed)
    seeded: dict[nn.Module, SeededDropout] = {}
    for name, module in list(model.named_modules(remove_duplicate=False)):
        if type(module) not in SEEDED or not name:
            continue
        if module not in seeded:
            p = float(module.p)  # type: ignore[arg-type]
            kind = SEEDED[type(module)]
            seeded[module] = SeededDropout(p, module.training, kind, name, len(seeded), keys)
        parent, _, attribute = name.rpartition(".")
        setattr(model.get_submodule(parent), attribute, seeded[module])
    return keys
