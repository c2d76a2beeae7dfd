"""Everything that a step depends on, as plain types and back.

Plain (tensors, numbers, strings, lists, dicts) because ``torch.load(weights_only=True)`` refuses the rest,
numpy scalars included, and a checkpoint that cannot be loaded is none.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

Plain = dict[str, Any]


@dataclass
class TrainState:
    model: nn.Module  # the bare module: its keys carry no wrapper's prefix
    optimizer: torch.optim.Optimizer
    scheduler: torch.optim.lr_scheduler.LRScheduler
    scaler: torch.amp.GradScaler
    step: int = 0  # finished steps
    evaluated_step: int = 0  # the last step after which the held-out split was looked at
    losses: list[float] = field(default_factory=list)  # mean loss of each finished step
    best_eval_loss: float | None = None
    precision: str = "fp32"  # that steps compute in; weights and moments are fp32 in all of them

    def capture(self) -> Plain:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "step": self.step,
            "evaluated_step": self.evaluated_step,
            "losses": torch.tensor(self.losses, dtype=torch.float64),
            "best_eval_loss": self.best_eval_loss,
            "precision": self.precision,
        }

    def restore(self, saved: Plain) -> str | None:
        """What the state brings that one might not expect, in one line. Another precision is sound, for what is saved
        is fp32 whatever steps compute in; a gradient scaler that was not saved begins anew.

        Raises RuntimeError or KeyError when the state is of another model.
        """
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        if saved["scaler"]:  # empty: saved by a run without one
            self.scaler.load_state_dict(saved["scaler"])
        self.step = saved["step"]
        self.evaluated_step = saved["evaluated_step"]
        self.losses = saved["losses"].tolist()
        self.best_eval_loss = saved["best_eval_loss"]
        if saved["precision"] == self.precision:
            return None
        return f"steps compute in {self.precision} from here on, in {saved['precision']} before; weights are fp32"


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
