"""What a group gives away without need: told, and nothing is stopped."""

from __future__ import annotations

from collections.abc import Iterator

from components.catalog import INSTANCE_TYPES

from .faults import Fault, Path, warning
from .group_model import GpuGroupSettings
from .model import Settings


@warning
def efa_is_used_where_it_is(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """EFA switched off on types that have it, in a group of one zone (ParallelCluster warns too)."""
    zones = group.zones if group.zones is not None else settings.network.availability_zones
    types = [INSTANCE_TYPES[name] for name in group.instance_types if name in INSTANCE_TYPES]
    capable = bool(types) and all(type_.max_efa_interfaces > 0 for type_ in types)
    if group.efa == "off" and capable and len(set(zones)) == 1 and group.max_nodes > 1:
        yield Fault(
            (*at, "efa"),
            f"off, and {types[0].name} has EFA: the nodes exchange gradients by TCP",
            "write auto",
        )


RULES = (efa_is_used_where_it_is,)
