"""The learning rate as a pure function of the step."""

from __future__ import annotations

import math
from typing import Literal


def rate_factor(step: int, total: int, warmup: int, kind: Literal["constant", "cosine"]) -> float:
    """What the learning rate is multiplied with at ``step`` (from 0).

    Rises linearly over ``warmup`` steps to 1; then stays there, or falls as half a cosine to 0 at ``total``.
    """
    if step < warmup:
        return (step + 1) / (warmup + 1)
    if kind == "constant":
        return 1.0
    done = (step - warmup) / max(1, total - warmup)
    return 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
