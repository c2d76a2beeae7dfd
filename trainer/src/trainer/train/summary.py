"""What a run's losses say in two numbers; the run result, ``make up`` and the report use this function."""

from __future__ import annotations

from collections.abc import Sequence


def loss_summary(losses: Sequence[float]) -> tuple[float, float]:
    """Mean loss of the first and of the last tenth of the steps, at least one step each.

    ``losses`` holds one mean training loss a step, in step order, all finite. Raises ValueError when empty.
    """
    if not losses:
        raise ValueError("a run without steps has no loss")
    tenth = max(1, len(losses) // 10)
    return sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth
