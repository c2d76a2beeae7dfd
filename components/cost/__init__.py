"""What a stack costs an hour, from dated list prices."""

from .estimate import Estimate, Line, estimate, hourly_cost_usd

__all__ = ["Estimate", "Line", "estimate", "hourly_cost_usd"]
