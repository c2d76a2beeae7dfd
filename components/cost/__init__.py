"""What a stack costs, from dated list prices, and the budget that watches what AWS bills."""

from components.settings import Settings

from .estimate import Estimate, estimate, hourly_cost_usd, monthly_cost_usd
from .lines import HOURS_PER_MONTH, Line, Span
from .table import cost_table

__all__ = [
    "HOURS_PER_MONTH",
    "Estimate",
    "Line",
    "Span",
    "cost_outputs",
    "cost_table",
    "estimate",
    "hourly_cost_usd",
    "monthly_cost_usd",
]


def cost_outputs(settings: Settings) -> dict[str, object]:
    """The stack's outputs about its cost: USD by the hour and by the month, and the table for people."""
    return {
        "hourlyCostUsd": hourly_cost_usd(settings),
        "monthlyCostUsd": monthly_cost_usd(settings),
        "costTable": cost_table(settings.stack, estimate(settings), estimate(settings, at_max=True)),
    }
