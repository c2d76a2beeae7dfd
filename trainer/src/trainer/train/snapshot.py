"""A state's copy in host memory, which the training that goes on cannot change.

Every tensor is copied, on a CPU too: what only names the same memory is changed by the next optimizer step before it
is written (pytorch 144657). Buffers are kept and used anew, so that a save asks the system for no memory but once;
on CUDA they are pinned and copied to on a stream of their own. The CUDA way has not run on a GPU yet.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from .state import Plain

_log = logging.getLogger(__name__)


class HostCopy:
    """Room for one copy of a state. The next `take` overwrites what the last one returned."""

    def __init__(self) -> None:
        self._buffers: dict[tuple[object, ...], torch.Tensor] = {}
        self._can_pin = True

    def take(self, state: Plain, after: torch.cuda.Event | None = None) -> Plain:
        """The state with all tensors in this room; tensors that share memory (tied weights) still do.

        ``after``: what a GPU has done once the state is there; none on a CPU.
        """
        if after is None:
            return self._copy(state, (), {})
        stream = torch.cuda.Stream(after.device)
        with torch.cuda.stream(stream):  # of the next step's kernels none waits for these copies
            stream.wait_event(after)
            copy = self._copy(state, (), {})
        stream.synchronize()  # copies into pinned memory are only begun
        return copy

    def _copy(
        self, value: Any, path: tuple[object, ...], done: dict[tuple[object, ...], torch.Tensor]
    ) -> Any:
        if isinstance(value, torch.Tensor):
            value = value.detach()
            key = (value.device, value.data_ptr(), value.shape, value.stride(), value.dtype)
            if value.numel() == 0 or key not in done:
                done[key] = self._buffer(path, value).copy_(value, non_blocking=value.is_cuda)
            return done[key]
        if isinstance(value, dict):
            return {name: self._copy(one, (*path, name), done) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._copy(one, (*path, place), done) for place, one in enumerate(value))
        return value  # numbers and strings do not change

    def _buffer(self, path: tuple[object, ...], like: torch.Tensor) -> torch.Tensor:
        kept = self._buffers.get(path)
        if kept is None or (kept.shape, kept.stride(), kept.dtype) != (like.shape, like.stride(), like.dtype):
            self._buffers[path] = kept = self._new(like)
        return kept

    def _new(self, like: torch.Tensor) -> torch.Tensor:
        if like.is_cuda and self._can_pin:
            try:
                return torch.empty_like(like, device="cpu", pin_memory=True)
            except RuntimeError as error:
                self._can_pin = False
                _log.warning("no pinned memory for checkpoints, copies take longer: %s", error)
        return torch.empty_like(like, device="cpu")
