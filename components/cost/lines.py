"""What an estimate is made of: lines with a count, a price and the price's date, and sums over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from typing import Literal

from components.catalog import Price

HOURS_PER_MONTH = 730  # AWS's own figure for monthly estimates

Kind = Literal["on-demand", "spot", "standing", "usage"]


@dataclass(frozen=True)
class Span:
    """An amount, USD an hour; low and high differ for spot only."""

    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        return Span(self.low + other.low, self.high + other.high)

    def times(self, factor: float) -> Span:
        return Span(self.low * factor, self.high * factor)


NOTHING = Span(0.0, 0.0)


@dataclass(frozen=True)
class Line:
    """One kind of cost: `usage` is the price of one unit and no part of a sum, the others are USD an hour."""

    kind: Kind
    what: str
    count: float
    usd: Span | None  # None: the catalog has no price for the region
    as_of: date | None  # of the oldest price in the line
    source: str | None


def line_of(
    kind: Kind,
    what: str,
    count: float,
    prices: Sequence[Price | None],
    *,
    limit_usd: float | None = None,
    units_per_price: float = 1.0,
) -> Line:
    """From the cheapest to the dearest of the prices; one that is unknown makes the line unknown.

    ``limit_usd`` caps a price; ``units_per_price`` is how many hours one price is for.
    """
    known = [price for price in prices if price is not None]
    if len(known) < len(prices) or not known:
        return Line(kind, what, count, None, None, None)
    low, high = min(price.low_usd for price in known), max(price.high_usd for price in known)
    if limit_usd is not None:
        low, high = min(low, limit_usd), min(high, limit_usd)
    oldest = min(known, key=lambda price: price.as_of)
    usd = Span(low, high).times(count / units_per_price)
    return Line(kind, what, count, usd, oldest.as_of, oldest.source)


def monthly(what: str, count: float, price: Price | None) -> Line:
    """A line of things that stand and are billed by the month."""
    return line_of("standing", what, count, [price], units_per_price=HOURS_PER_MONTH)


def usage(what: str, price: Price | None) -> Line:
    """The price of one unit of something that is billed by use."""
    return line_of("usage", what, 1, [price])
