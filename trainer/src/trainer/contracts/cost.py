"""What a run cost: the time it had of each node, and what that is by dated list prices."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import NodesDocument

LifeCycle = Literal["on-demand", "spot", "capacity-block"]


class NodeUsage(NodesDocument):
    """What a run had of one node, by that node's own clock, over all generations and restarts of its agent.

    It counts while the node is a member or prepares to be one: waiting for other members is paid too. Prices are
    cluster.json's, USD an hour; None where they are not known.
    """

    instance_type: str
    life_cycle: LifeCycle
    seconds: float = Field(ge=0)
    usd_per_hour_low: float | None = None
    usd_per_hour_high: float | None = None
    prices_as_of: str | None = None


class RunUsage(NodesDocument):
    """``runs/<run>/usage.json``: what the run had of its nodes before it was resumed, by instance id."""

    nodes: dict[str, NodeUsage] = Field(default_factory=dict)
    trained_seconds: float = Field(default=0, ge=0)  # of the run itself, whoever trained it


class NodeHours(NodesDocument):
    """All nodes of a run that are bought alike."""

    instance_type: str
    life_cycle: LifeCycle
    nodes: int
    hours: float  # of all of them together


class RunCost(NodesDocument):
    """Nodes only, by list prices: no disks, network or storage, and no boot before the node took up the run."""

    usd_low: float
    usd_high: float  # differs from the low one for spot
    node_hours: list[NodeHours] = Field(default_factory=list)
    prices_as_of: str | None = None  # of the oldest price; None: no price is known
    unpriced: list[str] = Field(default_factory=list)  # instance types whose hours are in no sum
