"""Everything that a step depends on, by names of the undivided model: what a rank saves, and restores its part from.

Schedules are functions of the step, so that of one nothing is saved.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from .saved_state import SavedState

WEIGHTS, MOMENTS, LOSSES = "model.", "optimizer.", "losses"


@dataclass(frozen=True)
class Part:
    """What one rank has of a training's state."""

    tensors: dict[str, torch.Tensor]  # whole ones, or this rank's shards as DTensor
    values: dict[str, torch.Tensor]  # of the same names: what this rank holds of each
    plain: dict[str, Any]  # the same on every rank; what JSON takes


@dataclass
class TrainState:
    """Of one rank. Names are those that parameters have in the undivided model."""

    model: nn.Module  # the bare module: its keys carry no wrapper's prefix
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler  # a function of the step
    scaler: torch.amp.GradScaler
    step: int = 0  # finished steps
    evaluated_step: int = 0  # the last step after which the held-out split was looked at
    losses: list[float] = field(default_factory=list)  # mean loss of each finished step
    best_eval_loss: float | None = None
    precision: str = "fp32"  # that steps compute in; weights and moments are fp32 in all of them
    # Tied weights have one name in a checkpoint: the other names, to that. None: as this rank's model ties them.
    tied: dict[str, str] | None = None
    has_all_layers: bool = True  # False: the model of this rank is a stage, and the rest is with other ranks

    def __post_init__(self) -> None:
        if self.tied is None:
            self.tied = tied_names(self.model)

    def capture(self) -> Part:
        """This rank's part, not copied. Raises ValueError where the model has a state that is no tensor."""
        tensors = self._weights()
        for name, parameter in self._parameters().items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                if value is not None:  # momentum that was not asked for
                    tensors[f"{MOMENTS}{name}.{key}"] = value
        tensors[LOSSES] = torch.tensor(self.losses, dtype=torch.float64)
        values = {name: one.to_local() if isinstance(one, DTensor) else one for name, one in tensors.items()}
        plain = {
            "step": self.step,
            "evaluated_step": self.evaluated_step,
            "best_eval_loss": self.best_eval_loss,
            "precision": self.precision,
            "scaler": self.scaler.state_dict(),
            "tied": self.tied,
        }
        return Part(tensors, values, plain)

    def restore(self, saved: SavedState) -> str | None:
        """Fill in this rank's part; what it brings that one might not expect, in one line. Another precision is sound,
        for what is saved is fp32 whatever steps compute in; a gradient scaler that was not saved begins anew.

        Raises ValueError or KeyError when the state is of another model, UnreadableError.
        """
        known, targets = self._parameters(), self._weights()
        unknown = [name for name in saved.sizes if name.startswith(WEIGHTS) and name not in targets]
        if unknown and self.has_all_layers:
            raise ValueError(f"the model has no {unknown[0].removeprefix(WEIGHTS)}")
        moments: dict[str, dict[str, torch.Tensor]] = {name: {} for name in known}
        for path, there in saved.sizes.items():
            name, _, key = path.removeprefix(MOMENTS).rpartition(".")
            if path.startswith(MOMENTS) and name in known:
                like = known[name] if there.size == known[name].shape else torch.empty(there.size)
                moments[name][key] = targets[path] = torch.empty_like(like, dtype=there.properties.dtype)
        targets[LOSSES] = losses = torch.empty(saved.sizes[LOSSES].size, dtype=torch.float64)
        saved.fill(targets)
        numbers = {
            one: n for n, one in enumerate(p for g in self.optimizer.param_groups for p in g["params"])
        }
        states = {numbers[known[name]]: state for name, state in moments.items() if state}
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": states})
        plain = saved.plain
        if plain["scaler"]:  # empty: saved by a run without one
            self.scaler.load_state_dict(plain["scaler"])
        self.step, self.evaluated_step = plain["step"], plain["evaluated_step"]
        self.losses, self.best_eval_loss = losses.tolist(), plain["best_eval_loss"]
        self.scheduler.last_epoch = self.step - 1
        self.scheduler.step()
        if plain["precision"] == self.precision:
            return None
        return f"steps compute in {self.precision} from here on, in {plain['precision']} before; weights are fp32"

    def _weights(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers themselves, under their names in a checkpoint."""
        own: dict[str, Any] = self.model.state_dict()
        for name, value in own.items():
            if not isinstance(value, torch.Tensor):
                raise ValueError(f"the model's state {name} is no tensor, and cannot be saved")
        return {f"{WEIGHTS}{self._saved_name(name)}": value for name, value in own.items()}

    def _parameters(self) -> dict[str, nn.Parameter]:
        return {self._saved_name(name): parameter for name, parameter in self.model.named_parameters()}

    def _saved_name(self, name: str) -> str:
        return self.tied.get(name, name) if self.tied else name


def tied_names(model: nn.Module) -> dict[str, str]:
    """Of parameters that are one: each further name, to the first."""
    first: dict[nn.Parameter, str] = {}
    named = model.named_parameters(remove_duplicate=False)
    return {name: first[one] for name, one in named if first.setdefault(one, name) != name}


def seed_step(seed: int, step: int, rank: int) -> None:
    """Every random source of this process (Python, numpy, torch on its devices), anew before each step.

    So a step draws the same numbers whatever ran before it, and no generator's state has to be saved: a resume
    needs the step alone, also where it has other ranks than the run before. Ranks differ.
    """
    mixed = hashlib.blake2b(f"{seed} {step} {rank}".encode(), digest_size=8).digest()
    random.seed(mixed)
    np.random.seed(np.frombuffer(mixed, dtype=np.uint32))
    number = int.from_bytes(mixed, "little", signed=True)
    torch.default_generator.manual_seed(
        number
    )  # torch.manual_seed asks for every kind of device: 0.1 ms a step
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(number)
