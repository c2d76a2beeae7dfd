"""What a converted file holds many of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Record:
    """An image uint8 [c, h, w] with its label, or, without a label, a run of tokens [t]."""

    array: np.ndarray[Any, Any]
    label: int | None = None
