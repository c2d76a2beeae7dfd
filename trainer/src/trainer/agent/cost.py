"""What a run had of its nodes, and what that costs. Pure but for `list_prices`, which reads cluster.json, and
`UsageClock`, which reads this node's own clock.

Each node's member report carries its own time and its own prices, so that they outlive the node and the leader needs
to know nothing about other groups. `trainer run resume` deletes the reports; it keeps what they said in usage.json.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..contracts import keys
from ..contracts.cluster import HourlyPrice
from ..contracts.cost import LifeCycle, NodeHours, NodeUsage, RunCost, RunUsage
from ..contracts.run import MemberReport
from ..errors import ConfigurationError, StoreError
from ..obs.exporter import NodeState
from ..obs.logs import get_logger
from .board import Board


def list_prices(board: Board, group: str) -> Mapping[str, HourlyPrice]:
    """By instance type. Without cluster.json there are none, and the log says so: no run fails for its price."""
    try:
        cluster = board.cluster()
    except (StoreError, ConfigurationError) as error:
        why = str(error)
    else:
        if cluster is not None and group in cluster.groups:
            return cluster.groups[group].prices
        why = f"s3://{board.bucket}/{keys.cluster()} does not tell of the group {group}"
    get_logger().warning("the run's cost is not known", why=why)
    return {}


def node_usage(
    instance_type: str, life_cycle: str, seconds: float, prices: Mapping[str, HourlyPrice]
) -> NodeUsage:
    """``life_cycle`` as the metadata service says it; what it may say besides spot is bought on demand."""
    if life_cycle == "capacity-block":
        # Paid when the block was bought, whoever runs in it.
        return NodeUsage(instance_type=instance_type, life_cycle="capacity-block", seconds=seconds)
    kind: LifeCycle = "spot" if life_cycle == "spot" else "on-demand"
    price = prices.get(instance_type)
    low, high = None, None
    if price is not None and kind == "spot":
        low, high = price.spot_low_usd, price.spot_high_usd
    elif price is not None:
        low = high = price.on_demand_usd
    return NodeUsage(
        instance_type=instance_type,
        life_cycle=kind,
        seconds=seconds,
        usd_per_hour_low=low,
        usd_per_hour_high=high,
        prices_as_of=price.as_of if price is not None and low is not None else None,
    )


@dataclass
class UsageClock:
    """How long this node has been with the run: what was counted before, and this agent's own time since."""

    instance_type: str
    life_cycle: str
    prices: Mapping[str, HourlyPrice]
    seconds_before: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    def read(self) -> NodeUsage:
        seconds = self.seconds_before + time.monotonic() - self._began
        return node_usage(self.instance_type, self.life_cycle, round(seconds, 3), self.prices)


def seconds_before(instance_id: str, report: MemberReport | None, earlier: RunUsage | None) -> float:
    """What is on record for a node: its report goes on from an earlier life of the run, so that it is never less."""
    on_record = [report.usage if report else None, earlier.nodes.get(instance_id) if earlier else None]
    return max((usage.seconds for usage in on_record if usage is not None), default=0.0)


def all_usage(reports: Mapping[str, MemberReport], earlier: RunUsage | None) -> dict[str, NodeUsage]:
    """Every node the run ever had, by instance id, those that are gone included."""
    found = dict(earlier.nodes) if earlier else {}
    for id_, report in reports.items():
        if report.usage is not None and report.usage.seconds >= (found[id_].seconds if id_ in found else 0):
            found[id_] = report.usage
    return found


def run_cost(usage: Mapping[str, NodeUsage]) -> RunCost | None:
    """The sum by list prices; None where no node told its time (an older release's)."""
    if not usage:
        return None
    by_kind: dict[tuple[str, LifeCycle], list[NodeUsage]] = {}
    for one in usage.values():
        by_kind.setdefault((one.instance_type, one.life_cycle), []).append(one)
    priced = [one for one in usage.values() if one.usd_per_hour_low is not None]
    return RunCost(
        usd_low=round(sum(one.seconds / 3600 * (one.usd_per_hour_low or 0.0) for one in priced), 4),
        usd_high=round(
            sum(
                one.seconds / 3600 * (one.usd_per_hour_high or one.usd_per_hour_low or 0.0) for one in priced
            ),
            4,
        ),
        node_hours=[
            NodeHours(
                instance_type=type_,
                life_cycle=life_cycle,
                nodes=len(nodes),
                hours=round(sum(one.seconds for one in nodes) / 3600, 4),
            )
            for (type_, life_cycle), nodes in sorted(by_kind.items())
        ],
        prices_as_of=min((one.prices_as_of for one in priced if one.prices_as_of), default=None),
        unpriced=sorted(
            {
                one.instance_type
                for one in usage.values()
                if one.usd_per_hour_low is None and one.life_cycle != "capacity-block"
            }
        ),
    )


def show_cost(cost: RunCost | None, state: NodeState) -> None:
    """As a metric; absent where the price of any node is not known, since a sum without it would be too low."""
    known = cost is not None and cost.prices_as_of is not None and not cost.unpriced
    state.set("trainer_run_cost_usd", cost.usd_low if cost and known else None, bound="low")
    state.set("trainer_run_cost_usd", cost.usd_high if cost and known else None, bound="high")


def describe_cost(cost: RunCost) -> str:
    """``USD 12.30 to 15.60 (3.2 h of 2 p5.48xlarge on-demand; list prices of 2026-07-20)``."""
    amount = f"USD {cost.usd_low:.2f}"
    if f"{cost.usd_high:.2f}" != f"{cost.usd_low:.2f}":
        amount += f" to {cost.usd_high:.2f}"
    hours = ", ".join(
        f"{kind.hours:.2f} h of {kind.nodes} {kind.instance_type} {kind.life_cycle}"
        for kind in cost.node_hours
    )
    words = [hours]
    if any(kind.life_cycle == "capacity-block" for kind in cost.node_hours):
        words.append("capacity blocks were paid up front")
    if cost.prices_as_of:
        words.append(f"list prices of {cost.prices_as_of}")
    if cost.unpriced:
        words.append(f"no price is known for {', '.join(cost.unpriced)}")
    if cost.prices_as_of is None:
        amount = "USD not known"
    return f"{amount} ({'; '.join(words)})"
