"""What the nodes of a group cost: as they are bought, and beside it all on demand and all as spot. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from components.catalog import item_price, on_demand_price, spot_price
from components.settings import GpuGroupSettings

from .lines import NOTHING, Line, Span, line_of, monthly


@dataclass(frozen=True)
class GroupCost:
    """The nodes of one group, USD an hour, without their disks; None where a price is unknown."""

    group: str
    nodes: int
    as_bought: Span | None
    all_on_demand: Span | None
    all_spot: Span | None


def created_nodes(group: GpuGroupSettings) -> int:
    return group.min_nodes if group.desired_nodes is None else group.desired_nodes


def split_purchase(group: GpuGroupSettings, nodes: int) -> tuple[int, int]:
    """How many of the nodes are bought on demand and how many as spot.

    The on-demand share above the base is rounded up: the dearer side, where one node more or less decides.
    """
    above = max(0, nodes - group.purchase.on_demand_base)
    on_demand_above = ceil(above * (100 - group.purchase.spot_percent) / 100)
    return nodes - above + on_demand_above, above - on_demand_above


def group_lines(group: GpuGroupSettings, nodes: int, region: str) -> Iterator[Line]:
    """Nodes and their root volumes."""
    if not nodes:
        return
    types = " or ".join(group.instance_types)
    if is_block(group):
        yield Line("on-demand", f"{group.name}: {types}, capacity block", nodes, NOTHING, None, None)
    else:
        on_demand, spot = split_purchase(group, nodes)
        if on_demand:
            yield _on_demand(group, f"{group.name}: {types}, on demand", on_demand, region)
        if spot:
            yield _spot(group, f"{group.name}: {types}, spot", spot, region)
    gib = nodes * group.root_volume_gib
    yield monthly(f"{group.name}: GiB of gp3 root volumes", gib, item_price("gp3-gib-month", region))


def group_cost(group: GpuGroupSettings, nodes: int, region: str) -> GroupCost:
    """The three ways to buy the same nodes, side by side."""
    bought = [line.usd for line in group_lines(group, nodes, region) if line.kind in ("on-demand", "spot")]
    known = [usd for usd in bought if usd is not None]
    return GroupCost(
        group=group.name,
        nodes=nodes,
        as_bought=sum(known, NOTHING) if len(known) == len(bought) else None,
        all_on_demand=_on_demand(group, "", nodes, region).usd,
        all_spot=_spot(group, "", nodes, region).usd,
    )


def is_block(group: GpuGroupSettings) -> bool:
    """A capacity block is paid when it is bought: its nodes cost nothing more."""
    return group.reservation is not None and group.reservation.kind == "capacity-block"


def _on_demand(group: GpuGroupSettings, what: str, count: int, region: str) -> Line:
    prices = [on_demand_price(name, region) for name in group.instance_types]
    return line_of("on-demand", what, count, prices)


def _spot(group: GpuGroupSettings, what: str, count: int, region: str) -> Line:
    prices = [spot_price(name, region) for name in group.instance_types]
    return line_of("spot", what, count, prices, limit_usd=group.purchase.max_price_usd_per_hour)
