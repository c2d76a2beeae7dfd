"""What cluster.json says of the price of nodes, so that a run can say what it cost. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from components.catalog import on_demand_price, spot_price


def node_prices(
    instance_types: Sequence[str], region: str, spot_limit_usd: float | None = None
) -> dict[str, dict[str, Any]]:
    """By instance type, as the trainer's HourlyPrice has it; a type without any known price is left out.

    ``spot_limit_usd``: the highest spot price that is paid, USD an hour; None: the on-demand price.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in instance_types:
        on_demand, spot = on_demand_price(name, region), spot_price(name, region)
        known = [price for price in (on_demand, spot) if price is not None]
        if not known:
            continue
        price: dict[str, Any] = {"asOf": min(one.as_of for one in known).isoformat()}
        if on_demand is not None:
            price["onDemandUsd"] = on_demand.high_usd
        if spot is not None:
            limit = float("inf") if spot_limit_usd is None else spot_limit_usd
            price |= {"spotLowUsd": min(spot.low_usd, limit), "spotHighUsd": min(spot.high_usd, limit)}
        found[name] = price
    return found
