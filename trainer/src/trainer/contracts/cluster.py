"""``cluster.json`` in the artifacts bucket: the stack as a researcher sees it, and the list prices for the nodes.

Prices are here and not in the node document, whose hash is in the launch template: a new price must replace no node.
"""

from __future__ import annotations

from pydantic import Field

from .base import ProgramDocument
from .node_document import DatasetLocation


class HourlyPrice(ProgramDocument):
    """List prices of one instance type, USD an hour; spot as a range, None where it is not known."""

    on_demand_usd: float | None = None
    spot_low_usd: float | None = None
    spot_high_usd: float | None = None
    as_of: str  # date of the older of the two


class GroupInfo(ProgramDocument):
    auto_scaling_group: str
    max_nodes: int = Field(ge=0)
    prices: dict[str, HourlyPrice] = Field(default_factory=dict)  # by instance type


class Cluster(ProgramDocument):
    schema_version: int = 1
    stack: str
    region: str
    artifacts_bucket: str
    groups: dict[str, GroupInfo]
    datasets: dict[str, DatasetLocation]
