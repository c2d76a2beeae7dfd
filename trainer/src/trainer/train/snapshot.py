"""A state's copy in host memory, which the training that goes on cannot change.

Every tensor is copied, on a CPU too: what only names the same memory is changed by the next optimizer step before it
is written (pytorch 144657). A rank copies its own part alone. Buffers are kept and used anew, so that a save asks the
system for no memory but once; on CUDA they are pinned and copied to on a stream of their own. The CUDA way has not run
on a GPU yet.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import torch

from .state import Part

_log = logging.getLogger(__name__)


class HostCopy:
    """Room for one copy of a state. The next `take` overwrites what the last one returned."""

    def __init__(self) -> None:
        self._buffers: dict[str, torch.Tensor] = {}
        self._can_pin = True

    def take(self, part: Part, after: torch.cuda.Event | None = None) -> Part:
        """The part with all its values in this room. ``after``: what a GPU has done once they are there; none on a
        CPU."""
        if after is None:
            return self._copy(part)
        stream = torch.cuda.Stream(after.device)
        with torch.cuda.stream(stream):  # of the next step's kernels none waits for these copies
            stream.wait_event(after)
            copy = self._copy(part)
        stream.synchronize()  # copies into pinned memory are only begun
        return copy

    def _copy(self, part: Part) -> Part:
        values = {
            name: self._buffer(name, value).copy_(value, non_blocking=value.is_cuda)
            for name, value in part.values.items()
        }
        return replace(part, values=values)

    def _buffer(self, name: str, like: torch.Tensor) -> torch.Tensor:
        kept = self._buffers.get(name)
        if kept is None or (kept.shape, kept.stride(), kept.dtype) != (like.shape, like.stride(), like.dtype):
            self._buffers[name] = kept = self._new(like)
        return kept

    def _new(self, like: torch.Tensor) -> torch.Tensor:
        if like.is_cuda and self._can_pin:
            try:
                return torch.empty_like(like, device="cpu", pin_memory=True)
            except RuntimeError as error:
                self._can_pin = False
                _log.warning("no pinned memory for checkpoints, copies take longer: %s", error)
        return torch.empty_like(like, device="cpu")
