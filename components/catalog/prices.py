"""Dated list prices in USD. A price that was not read anywhere is absent: nobody guesses."""

from __future__ import annotations

from typing import Literal

from .lookup import Row, read_rows

Kind = Literal["on-demand", "spot", "item"]


class Price(Row):
    """The price of one unit. Low and high differ for spot only, where zones and weeks differ."""

    kind: Kind
    item: str  # an instance type, or the name of another billed thing such as nat-gateway-hour
    region: str
    unit: str
    low_usd: float
    high_usd: float


PRICES: dict[tuple[Kind, str, str], Price] = {
    (price.kind, price.item, price.region): price
    for price in (Price.model_validate(row) for row in read_rows("prices.json"))
}


def on_demand_price(instance_type: str, region: str) -> Price | None:
    """USD per instance hour (Linux, on demand), or None where it is not known."""
    return PRICES.get(("on-demand", instance_type, region))


def spot_price(instance_type: str, region: str) -> Price | None:
    """The range of spot prices, USD per instance hour, or None where it is not known."""
    return PRICES.get(("spot", instance_type, region))


def item_price(item: str, region: str) -> Price | None:
    """The price of something that is no instance, per its own unit, or None where it is not known."""
    return PRICES.get(("item", item, region))
