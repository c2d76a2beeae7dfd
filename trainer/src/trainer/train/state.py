"""Everything that a step depends on, as plain types and back.

Plain (tensors, numbers, strings, lists, dicts) because ``torch.load(weights_only=True)`` refuses the rest,
numpy scalars included, and a checkpoint that cannot be loaded is none.
"""

from __future__ import annotations

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
    losses: list[float] = field(default_factory=list)  # mean loss of each finished step
    best_eval_loss: float | None = None

    def capture(self, rng_of_ranks: list[Plain]) -> Plain:
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "scaler": self.scaler.state_dict(),
            "rng": rng_of_ranks,
            "step": self.step,
            "losses": torch.tensor(self.losses, dtype=torch.float64),
            "best_eval_loss": self.best_eval_loss,
        }

    def restore(self, saved: Plain) -> None:
        """Raises RuntimeError or KeyError when the state is of another model."""
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.scheduler.load_state_dict(saved["scheduler"])
        self.scaler.load_state_dict(saved["scaler"])
        self.step = saved["step"]
        self.losses = saved["losses"].tolist()
        self.best_eval_loss = saved["best_eval_loss"]


def seed_rank(seed: int, rank: int) -> None:
    """Every random source of this process; ranks differ, so that their dropout masks do."""
    mixed = (seed * 1_000_003 + rank) % 2**32
    random.seed(mixed)
    np.random.seed(mixed)
    torch.manual_seed(mixed)


def capture_rng(device: torch.device) -> Plain:
    version, numbers, gauss = random.getstate()
    kind, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": [version, list(numbers), gauss],
        "numpy": [str(kind), [int(key) for key in keys], int(position), int(has_gauss), float(cached)],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_rng(saved: Plain, device: torch.device) -> None:
    version, numbers, gauss = saved["python"]
    random.setstate((version, tuple(numbers), gauss))
    kind, keys, position, has_gauss, cached = saved["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    torch.set_rng_state(saved["torch"])
    if device.type == "cuda" and saved["cuda"] is not None:
        torch.cuda.set_rng_state(saved["cuda"], device)
