"""A model for tests: it learns a little, draws random numbers, and writes down which samples it was shown.

``noise`` draws from every source but dropout modules; ``slow_rank`` is the only one that takes ``step_seconds``.
With ``hold_at`` a run's first generation does not end that step before it was asked to stop, so that it is stopped
there however late the request comes. Later generations do not hold, and have the same configuration.
With ``gradients`` it also keeps what the optimizer's first step was given, in ``<record>.gradients``.
"""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tests.trainer.kit import RECORD_VARIABLE, numbers_of


class Recorder(nn.Module):
    def __init__(
        self,
        classes: int,
        dropout: float,
        noise: float,
        nan_at: int,
        step_seconds: float,
        slow_rank: int | None,
        gradients: bool,
        hold_at: int,
    ) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, classes)
        )
        self.noise, self.nan_at, self.hold_at, self.calls = noise, nan_at, hold_at, 0
        self.step_seconds = step_seconds if slow_rank in (None, int(os.environ.get("RANK", "0"))) else 0
        self.file = os.environ.get(RECORD_VARIABLE)
        if gradients and self.file:
            register_optimizer_step_pre_hook(self._keep_first_gradients)

    def _keep_first_gradients(self, *_: object) -> None:
        path = Path(f"{self.file}.gradients")
        if not path.exists():
            torch.save({name: value.grad for name, value in self.named_parameters()}, path)

    def _hold(self) -> None:
        gen_dir = Path(self.file or "").parents[1]
        deadline = time.monotonic() + 60
        while gen_dir.name == "gen-0001" and not (gen_dir / "stop").exists():
            assert time.monotonic() < deadline, "nobody asked for a stop"
            time.sleep(0.01)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = self.layers(images)
        if not self.training:
            return logits
        if self.file:
            with open(self.file, "a") as record:
                record.write(json.dumps(numbers_of(images)) + "\n")
        time.sleep(self.step_seconds)
        self.calls += 1
        if self.calls == self.hold_at:
            self._hold()
        if self.noise:
            scale = self.noise * (random.random() + float(np.random.random()))
            logits = nn.functional.dropout(logits + scale * torch.rand_like(logits), 0.1)
        return logits * float("nan") if self.calls == self.nan_at else logits


def build(
    dataset: Any,
    dropout: float = 0.0,
    noise: float = 0.0,
    nan_at: int = 0,
    step_seconds: float = 0.0,
    slow_rank: int | None = None,
    gradients: bool = False,
    hold_at: int = 0,
) -> nn.Module:
    return Recorder(dataset.classes, dropout, noise, nan_at, step_seconds, slow_rank, gradients, hold_at)
