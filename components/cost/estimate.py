"""What a stack costs an hour by the catalog's dated list prices. Pure: settings in, lines out.

Counted is what stands while nothing happens, and the nodes: instances, root volumes, NAT gateways with their
public addresses or the endpoints in their place, alarms. What depends on use (gigabytes through NAT, gigabytes
of logs) is listed with its price and not added up. Not listed: S3 storage and requests, data transfer between
zones and out of AWS, KMS and SNS. A price that the catalog does not have is named as unknown; no sum pretends
to include it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from math import ceil
from typing import Literal

from components.catalog import Price, item_price, on_demand_price, spot_price
from components.network.plan import NODE_SERVICES
from components.settings import GpuGroupSettings, Settings

HOURS_PER_MONTH = 730  # AWS's own figure for monthly estimates
ALARMS_PER_GROUP = 3  # node missing, self-check failed, launches suspended
ALARMS_PER_SPOT_GROUP = 1  # spot capacity short

Kind = Literal["on-demand", "spot", "standing", "usage"]


@dataclass(frozen=True)
class Line:
    """One kind of cost: `usage` is the price of one unit and no part of a sum, the others are per hour.

    Low and high differ for spot only. Both are None where a price is unknown.
    """

    kind: Kind
    what: str
    count: float
    low_usd_per_hour: float | None
    high_usd_per_hour: float | None
    as_of: date | None  # of the oldest price in the line
    source: str | None


@dataclass(frozen=True)
class Estimate:
    """The cost of one stack at one number of nodes."""

    region: str
    lines: tuple[Line, ...]

    def low(self, *kinds: Kind) -> float:
        """Sum of the known lines of these kinds at their lower price, USD an hour."""
        return sum(line.low_usd_per_hour or 0.0 for line in self.lines if line.kind in kinds)

    def high(self, *kinds: Kind) -> float:
        """Sum of the known lines of these kinds at their higher price, USD an hour."""
        return sum(line.high_usd_per_hour or 0.0 for line in self.lines if line.kind in kinds)

    @property
    def total_low(self) -> float:
        return self.low("on-demand", "spot", "standing")

    @property
    def total_high(self) -> float:
        return self.high("on-demand", "spot", "standing")

    @property
    def unknown(self) -> tuple[str, ...]:
        """What has no price in the catalog for this region; the sums leave it out."""
        return tuple(line.what for line in self.lines if line.low_usd_per_hour is None)

    @property
    def prices_as_of(self) -> date | None:
        """Date of the oldest price that was used."""
        return min((line.as_of for line in self.lines if line.as_of is not None), default=None)

    def as_outputs(self) -> dict[str, object]:
        """Plain values, USD an hour."""
        return {
            "onDemand": round(self.high("on-demand"), 4),
            "spotLow": round(self.low("spot"), 4),
            "spotHigh": round(self.high("spot"), 4),
            "standing": round(self.high("standing"), 4),
            "totalLow": round(self.total_low, 4),
            "totalHigh": round(self.total_high, 4),
            "region": self.region,
            "pricesAsOf": self.prices_as_of.isoformat() if self.prices_as_of else None,
            "unknown": list(self.unknown),
        }

    def table(self) -> str:
        """All lines as a Markdown table."""
        rows = ["| what | count | USD an hour | price as of |", "|---|--:|--:|---|"]
        for line in self.lines:
            amount = _range(line.low_usd_per_hour, line.high_usd_per_hour)
            per = " a unit" if line.kind == "usage" and line.as_of else ""
            dated = line.as_of.isoformat() if line.as_of else ""
            rows.append(f"| {line.what} | {line.count:g} | {amount}{per} | {dated} |")
        total = _range(self.total_low, self.total_high)
        rows.append(f"| **together in {self.region}**, without usage and unknown prices | | **{total}** | |")
        return "\n".join(rows) + "\n"


def estimate(settings: Settings, at_max: bool = False) -> Estimate:
    """The cost with each group's nodes at creation, or with `at_max` when every group is full."""
    lines: list[Line] = []
    for group in settings.gpu_groups:
        created = group.min_nodes if group.desired_nodes is None else group.desired_nodes
        lines += _group_lines(group, group.max_nodes if at_max else created, settings.region)
    lines += _standing_lines(settings)
    return Estimate(settings.region, tuple(lines))


def hourly_cost_usd(settings: Settings) -> dict[str, object]:
    """The stack output `hourlyCostUsd`: the cost at creation, and the sum's bounds with all groups full."""
    full = estimate(settings, at_max=True)
    return {
        **estimate(settings).as_outputs(),
        "totalLowAtMaxNodes": round(full.total_low, 4),
        "totalHighAtMaxNodes": round(full.total_high, 4),
        "unknownAtMaxNodes": list(full.unknown),
    }


def split_purchase(group: GpuGroupSettings, nodes: int) -> tuple[int, int]:
    """How many of the nodes are bought on demand and how many as spot.

    The on-demand share above the base is rounded up: the dearer side, where one node more or less decides.
    """
    above = max(0, nodes - group.purchase.on_demand_base)
    on_demand_above = ceil(above * (100 - group.purchase.spot_percent) / 100)
    return nodes - above + on_demand_above, above - on_demand_above


def _group_lines(group: GpuGroupSettings, nodes: int, region: str) -> Iterator[Line]:
    on_demand, spot = split_purchase(group, nodes)
    types = " or ".join(group.instance_types)
    if on_demand:
        prices = [on_demand_price(name, region) for name in group.instance_types]
        yield _line("on-demand", f"{group.name}: {types}, on demand", on_demand, prices)
    if spot:
        prices = [spot_price(name, region) for name in group.instance_types]
        limit = group.purchase.max_price_usd_per_hour
        yield _line("spot", f"{group.name}: {types}, spot", spot, prices, limit_usd=limit)
    if nodes:
        gib = nodes * group.root_volume_gib
        yield _monthly(f"{group.name}: GiB of gp3 root volumes", gib, item_price("gp3-gib-month", region))


def _standing_lines(settings: Settings) -> Iterator[Line]:
    region = settings.region
    zones = len(settings.network.availability_zones)
    gateways = {"none": 0, "single": 1, "per-az": zones}[settings.network.nat]
    if gateways:
        yield _line("standing", "NAT gateways", gateways, [item_price("nat-gateway-hour", region)])
        yield _line("standing", "public IPv4 addresses", gateways, [item_price("public-ipv4-hour", region)])
        yield _line("usage", "GB through NAT", 1, [item_price("nat-gateway-gb", region)])
    else:
        endpoints = len(NODE_SERVICES) * zones
        price = item_price("interface-endpoint-hour", region)
        yield _line("standing", "interface endpoints, one a service and zone", endpoints, [price])
    spot_groups = sum(group.purchase.spot_percent > 0 for group in settings.gpu_groups)
    alarms = ALARMS_PER_GROUP * len(settings.gpu_groups) + ALARMS_PER_SPOT_GROUP * spot_groups
    yield _monthly("CloudWatch alarms", alarms, item_price("cloudwatch-alarm-month", region))
    yield _line("usage", "GB of logs taken in", 1, [item_price("log-ingestion-gb", region)])


def _monthly(what: str, count: float, price: Price | None) -> Line:
    """A line of things that are billed by the month."""
    if price is None:
        return Line("standing", what, count, None, None, None, None)
    usd_per_hour = count * price.high_usd / HOURS_PER_MONTH
    return Line("standing", what, count, usd_per_hour, usd_per_hour, price.as_of, price.source)


def _line(
    kind: Kind, what: str, count: float, prices: list[Price | None], limit_usd: float | None = None
) -> Line:
    """From the cheapest to the dearest of the prices; one that is unknown makes the line unknown."""
    known = [price for price in prices if price is not None]
    if len(known) < len(prices):
        return Line(kind, what, count, None, None, None, None)
    low, high = min(price.low_usd for price in known), max(price.high_usd for price in known)
    if limit_usd is not None:
        low, high = min(low, limit_usd), min(high, limit_usd)
    oldest = min(known, key=lambda price: price.as_of)
    return Line(kind, what, count, count * low, count * high, oldest.as_of, oldest.source)


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return "not known"
    return f"{low:.4f}" if f"{low:.4f}" == f"{high:.4f}" else f"{low:.4f} to {high:.4f}"
