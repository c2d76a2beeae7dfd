"""For each validator of single resources inputs that it, and no other, refuses: as the engine records them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Bad(NamedTuple):
    """The validator's id, a resource's type and inputs, and what the validator says of them."""

    validator: str
    type: str
    inputs: Mapping[str, Any]
    says: str
