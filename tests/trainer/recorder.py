"""A model for tests: it learns a little, draws random numbers, and writes down which samples it was shown."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import torch
from torch import nn

from tests.trainer.kit import RECORD_VARIABLE, numbers_of


class Recorder(nn.Module):
    def __init__(self, classes: int, dropout: float, nan_at: int, step_seconds: float) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, classes)
        )
        self.nan_at, self.step_seconds, self.calls = nan_at, step_seconds, 0
        self.file = os.environ.get(RECORD_VARIABLE)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        logits = self.layers(images)
        if not self.training:
            return logits
        if self.file:
            with open(self.file, "a") as record:
                record.write(json.dumps(numbers_of(images)) + "\n")
        time.sleep(self.step_seconds)
        self.calls += 1
        return logits * float("nan") if self.calls == self.nan_at else logits


def build(dataset: Any, dropout: float = 0.0, nan_at: int = 0, step_seconds: float = 0.0) -> nn.Module:
    return Recorder(dataset.classes, dropout, nan_at, step_seconds)
