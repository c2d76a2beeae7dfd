"""What a stack costs by the catalog's dated list prices. Pure: settings in, lines out.

Counted are the nodes with their disks, and what stands while nothing happens. What depends on use (gigabytes
through NAT, of logs, in S3) is listed with its price and not added up. A price that the catalog does not have
is named as unknown; no sum pretends to include it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from components.settings import Settings

from .lines import HOURS_PER_MONTH, NOTHING, Kind, Line, Span
from .nodes import GroupCost, created_nodes, group_cost, group_lines
from .standing import notes, standing_lines

COUNTED: tuple[Kind, ...] = ("on-demand", "spot", "standing")


@dataclass(frozen=True)
class Estimate:
    """The cost of one stack at one number of nodes."""

    region: str
    lines: tuple[Line, ...]
    groups: tuple[GroupCost, ...]
    notes: tuple[str, ...]

    def usd(self, *kinds: Kind) -> Span:
        """Sum of the known lines of these kinds, USD an hour."""
        return sum((line.usd for line in self.lines if line.usd and line.kind in kinds), NOTHING)

    @property
    def total(self) -> Span:
        return self.usd(*COUNTED)

    @property
    def a_month(self) -> Span:
        return self.total.times(HOURS_PER_MONTH)

    @property
    def unknown(self) -> tuple[str, ...]:
        """What has no price in the catalog for this region; the sums leave it out."""
        return tuple(line.what for line in self.lines if line.usd is None)

    @property
    def dates(self) -> tuple[date, date] | None:
        """Of the oldest and of the newest price that was used."""
        dates = [line.as_of for line in self.lines if line.as_of is not None]
        return (min(dates), max(dates)) if dates else None


def estimate(settings: Settings, at_max: bool = False) -> Estimate:
    """The cost with each group's nodes at creation, or with `at_max` when every group is full."""
    lines: list[Line] = []
    groups: list[GroupCost] = []
    for group in settings.gpu_groups:
        nodes = group.max_nodes if at_max else created_nodes(group)
        lines += group_lines(group, nodes, settings.region)
        groups.append(group_cost(group, nodes, settings.region))
    lines += standing_lines(settings)
    return Estimate(settings.region, tuple(lines), tuple(groups), tuple(notes(settings)))


def empty_stack(settings: Settings) -> Span:
    """What the stack costs with no node at all, USD a month."""
    lines = Estimate(settings.region, tuple(standing_lines(settings)), (), ())
    return lines.a_month


def hourly_cost_usd(settings: Settings) -> dict[str, object]:
    """The stack output `hourlyCostUsd`: by kind at creation, the sum's bounds also with all groups full, and for each
    group what its nodes cost as bought, all on demand and all as spot.
    """
    now, full = estimate(settings), estimate(settings, at_max=True)
    return {
        **_sums(now, full, 1, 4),
        "region": settings.region,
        "pricesAsOf": [day.isoformat() for day in full.dates or ()],
        "unknown": list(now.unknown),
        "unknownAtMaxNodes": list(full.unknown),
        "groupsAtMaxNodes": {
            group.group: {
                "nodes": group.nodes,
                **_bounds("asBought", group.as_bought),
                **_bounds("allOnDemand", group.all_on_demand),
                **_bounds("allSpot", group.all_spot),
            }
            for group in full.groups
        },
    }


def monthly_cost_usd(settings: Settings) -> dict[str, object]:
    """The stack output `monthlyCostUsd`: the same sums for 730 hours."""
    return dict(_sums(estimate(settings), estimate(settings, at_max=True), HOURS_PER_MONTH, 2))


def _sums(now: Estimate, full: Estimate, hours: int, digits: int) -> dict[str, float]:
    spot, total, at_max = now.usd("spot"), now.total, full.total
    sums = {
        "onDemand": now.usd("on-demand").high,
        "spotLow": spot.low,
        "spotHigh": spot.high,
        "standing": now.usd("standing").high,
        "totalLow": total.low,
        "totalHigh": total.high,
        "totalLowAtMaxNodes": at_max.low,
        "totalHighAtMaxNodes": at_max.high,
    }
    return {name: round(usd * hours, digits) for name, usd in sums.items()}


def _bounds(name: str, usd: Span | None) -> dict[str, float | None]:
    """None where a price is not known."""
    if usd is None:
        return {f"{name}Low": None, f"{name}High": None}
    return {f"{name}Low": round(usd.low, 4), f"{name}High": round(usd.high, 4)}
