"""Stack configurations of any number of groups, made from the production stack's own groups."""

from __future__ import annotations

from copy import deepcopy
from itertools import cycle, islice
from typing import Any

import yaml

from localcloud.toolchain import ROOT

MAX_NODES = 2  # of each group: addresses of a zone are for all groups together


def with_groups(count: int) -> dict[str, Any]:
    """The whole stack file with `count` groups, which take turns in being on demand with EFA, mixed, and spot."""
    file = yaml.safe_load((ROOT / "Pulumi.prod.yaml").read_text("utf-8"))
    models = file["config"]["gpu-training:gpuGroups"]
    groups = [deepcopy(group) for group in islice(cycle(models), count)]
    for place, group in enumerate(groups):
        group |= {"name": f"g{place:03d}", "maxNodes": MAX_NODES}
        group.get("purchase", {}).update(
            onDemandBase=min(1, group.get("purchase", {}).get("onDemandBase", 0))
        )
    file["config"]["gpu-training:gpuGroups"] = groups
    return file


def namespace(file: dict[str, Any]) -> dict[str, Any]:
    """The values of our own namespace; encrypted ones become a text."""
    return {
        key.partition(":")[2]: _plain(value)
        for key, value in file["config"].items()
        if key.startswith("gpu-training:")
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return (
            "encrypted"
            if value.keys() == {"secure"}
            else {key: _plain(inner) for key, inner in value.items()}
        )
    return [_plain(item) for item in value] if isinstance(value, list) else value
