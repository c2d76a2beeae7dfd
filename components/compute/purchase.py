"""How the nodes of a group are bought, in Auto Scaling's and EC2's own terms. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from components.settings.group_model import Purchase, Reservation


@dataclass(frozen=True)
class MixedInstances:
    """A mixed-instances policy in Auto Scaling's own terms."""

    instance_types: tuple[str, ...]  # the preferred one first
    on_demand_base_nodes: int
    on_demand_percent_above_base: int
    spot_allocation_strategy: str
    spot_max_price_usd_per_hour: str | None  # decimal text; None: the on-demand price is the limit


@dataclass(frozen=True)
class ReservedCapacity:
    """The reservation that every launch template of the group targets."""

    id: str
    # capacity-block: EC2 takes a launch into a block only with this market type and the id together
    # (terraform-provider-aws#38579). None: an on-demand reservation, for which there is none.
    market_type: Literal["capacity-block"] | None


def plan_purchase(instance_types: Sequence[str], purchase: Purchase) -> MixedInstances | None:
    """The mixed-instances policy; None for one type without spot, where it would only stand in the way.

    There is no spot_instance_pools: Auto Scaling takes it with the strategy lowest-price only, which interrupts
    most and is not offered (terraform#25038).
    """
    if len(instance_types) == 1 and purchase.spot_percent == 0:
        return None
    limit = purchase.max_price_usd_per_hour
    return MixedInstances(
        instance_types=tuple(instance_types),
        on_demand_base_nodes=purchase.on_demand_base,
        on_demand_percent_above_base=100 - purchase.spot_percent,
        spot_allocation_strategy=purchase.strategy,
        spot_max_price_usd_per_hour=None if limit is None else format(Decimal(str(limit)), "f"),
    )


def plan_rebalance(purchase: Purchase, efa: bool) -> bool:
    """Whether EC2 replaces a spot node that is likely to be interrupted before it is.

    An explicit value wins. Else on for spot without EFA; with EFA off, since the group then has a node more
    than the run's world for a while, and loses one of the world in the middle of a step.
    """
    if purchase.capacity_rebalance is not None:
        return purchase.capacity_rebalance
    return purchase.spot_percent > 0 and not efa


def plan_reservation(reservation: Reservation | None) -> ReservedCapacity | None:
    """What the templates say of the reservation; None: the group launches wherever there is capacity.

    A template names a target and no preference: EC2 refuses both together, and a launch with a target goes into
    it or fails.
    """
    if reservation is None:
        return None
    return ReservedCapacity(
        id=reservation.id,
        market_type="capacity-block" if reservation.kind == "capacity-block" else None,
    )


def least_healthy_percent(max_nodes: int) -> int:
    """Share of a group that an instance refresh keeps in service, so that never two nodes leave at once.

    In a group of d nodes, at most ``max_nodes``, this leaves d - 1 in service or all d, however Auto Scaling rounds.
    Where it leaves all d, Auto Scaling still replaces one at a time, and launches the new one first.
    """
    return -(-100 * (max_nodes - 1) // max_nodes)
