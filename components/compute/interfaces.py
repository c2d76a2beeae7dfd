"""The interfaces of a group's nodes, and with them its launch templates. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from components.catalog import (
    InstanceType,
    Layout,
    NetworkInterface,
    addresses_per_node,
    interfaces_of,
    layout_faults,
)


@dataclass(frozen=True)
class LayoutGroup:
    """Instance types that one launch template serves, since their interfaces are the same."""

    interfaces: tuple[NetworkInterface, ...]
    instance_types: tuple[str, ...]  # in the order of the group

    @property
    def addresses_per_node(self) -> int:
        return addresses_per_node(self.interfaces)


def plan_layouts(
    types: Sequence[InstanceType], efa: bool, layout: Layout = "ip-optimized"
) -> tuple[LayoutGroup, ...]:
    """The types of a group by their interfaces; the preferred type's layout comes first.

    One entry is one launch template for the whole group; with more, each override of the mixed-instances policy
    names the template of its own layout. Raises ValueError where EC2 would refuse a layout, such as EFA on a type
    without it.
    """
    by_layout: dict[tuple[NetworkInterface, ...], list[str]] = {}
    for type_ in types:
        interfaces = interfaces_of(type_, efa, layout)
        if faults := layout_faults(interfaces, type_):
            raise ValueError("; ".join(faults))
        by_layout.setdefault(interfaces, []).append(type_.name)
    return tuple(LayoutGroup(interfaces, tuple(names)) for interfaces, names in by_layout.items())
