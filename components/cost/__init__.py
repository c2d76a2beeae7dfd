"""What a stack costs, from dated list prices, and the budget that watches what AWS bills."""

from .estimate import Estimate, estimate, hourly_cost_usd, monthly_cost_usd
from .lines import HOURS_PER_MONTH, Line, Span
from .table import cost_table

__all__ = [
    "HOURS_PER_MONTH",
    "Estimate",
    "Line",
    "Span",
    "cost_table",
    "estimate",
    "hourly_cost_usd",
    "monthly_cost_usd",
]
