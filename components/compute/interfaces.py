"""The network interfaces of a node. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from components.catalog import InstanceType, NetworkInterface

PLAIN_INTERFACE = NetworkInterface(network_card_index=0, device_index=0, interface_type="interface")


def plan_interfaces(types: Sequence[InstanceType], efa: bool) -> tuple[NetworkInterface, ...]:
    """The interfaces of the group's launch template: the catalog's EFA layout, or one plain interface.

    Raises ValueError where the types have different layouts, since one template serves them all, and where a
    layout is one that EC2 refuses.
    """
    layouts = {type_.efa_layout if efa else (PLAIN_INTERFACE,) for type_ in types}
    if len(layouts) != 1:
        listed = ", ".join(type_.name for type_ in types)
        raise ValueError(f"{listed} have different network interfaces and need a group each")
    (layout,) = layouts
    faults = [fault for type_ in types for fault in layout_faults(layout, type_)]
    if faults:
        raise ValueError("; ".join(faults))
    return layout


def layout_faults(layout: Sequence[NetworkInterface], type_: InstanceType) -> list[str]:
    """Why EC2 would refuse to launch the type with these interfaces; empty when it would not.

    The rules are those of the EC2 user guide's page on EFA and accelerated instance types (2026).
    """
    faults: list[str] = []
    places = [(interface.network_card_index, interface.device_index) for interface in layout]
    by_place = dict(zip(places, layout, strict=True))
    if (0, 0) not in by_place:
        faults.append("no interface on card 0, device 0, which carries the address")
    elif by_place[0, 0].interface_type == "efa-only":
        faults.append("the interface on card 0, device 0 is efa-only and would carry no address")
    if len(by_place) < len(layout):
        faults.append("two interfaces have one card and one device index")
    with_efa = [interface for interface in layout if interface.interface_type != "interface"]
    if len(with_efa) > type_.max_efa_interfaces:
        faults.append(f"{len(with_efa)} EFA interfaces, {type_.name} takes {type_.max_efa_interfaces}")
    for card in sorted({card for card, _ in places}):
        if card >= type_.network_card_count:
            faults.append(f"network card {card}, {type_.name} has {type_.network_card_count}")
            continue
        # Indexes count from 0 on each card, not over all cards.
        too_high = [
            device for index, device in places if index == card and device >= type_.max_interfaces_on(card)
        ]
        if too_high:
            faults.append(f"device index {max(too_high)} on card {card} of {type_.name} is too high")
        efa_here = sum(interface.network_card_index == card for interface in with_efa)
        if efa_here > _efa_limit(type_, card):
            faults.append(f"{efa_here} EFA interfaces on card {card} of {type_.name}")
    return faults


def _efa_limit(type_: InstanceType, card: int) -> int:
    """One EFA a card, on those that carry any: p6-b300 has none on card 0."""
    return sum(cards.efa for cards in type_.network_cards if cards.first_index <= card <= cards.last_index)
