"""``cluster.json`` in the artifacts bucket: the stack as a researcher sees it."""

from __future__ import annotations

from pydantic import Field

from .base import ProgramDocument
from .node_document import DatasetLocation


class GroupInfo(ProgramDocument):
    auto_scaling_group: str
    max_nodes: int = Field(ge=0)


class Cluster(ProgramDocument):
    schema_version: int = 1
    stack: str
    region: str
    artifacts_bucket: str
    groups: dict[str, GroupInfo]
    datasets: dict[str, DatasetLocation]
