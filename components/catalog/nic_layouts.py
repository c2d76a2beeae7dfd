"""The network interfaces of an instance type, as the EC2 user guide lays them out, and what EC2 would refuse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from .instance_types import InstanceType, NetworkInterface

Layout = Literal["ip-optimized", "bandwidth-optimized"]
PLAIN_INTERFACE = NetworkInterface(network_card_index=0, device_index=0, interface_type="interface")


def interfaces_of(type_: InstanceType, efa: bool, layout: Layout) -> tuple[NetworkInterface, ...]:
    """The interfaces of one type, by card and device.

    Both layouts are the EC2 user guide's (efa-acc-inst-types, 2026): ``ip-optimized`` has one address and EFA-only
    interfaces; ``bandwidth-optimized`` adds a plain interface, with an address, at device 1 of each card that the
    IP bandwidth needs. Without EFA the guide names no second interface, and there is one.
    """
    if not efa:
        return (PLAIN_INTERFACE,)
    cards = type_.bandwidth_cards if layout == "bandwidth-optimized" else ()
    return tuple(sorted((*type_.efa_layout, *(NetworkInterface(card, 1, "interface") for card in cards))))


def addresses_per_node(interfaces: Sequence[NetworkInterface]) -> int:
    """Addresses of the subnet that one node takes: EFA-only interfaces take none."""
    return sum(interface.interface_type != "efa-only" for interface in interfaces)


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
    limit = type_.max_network_interfaces
    if limit is not None and len(layout) > limit:
        faults.append(f"{len(layout)} interfaces, {type_.name} takes {limit}")
    with_efa = [interface for interface in layout if interface.interface_type != "interface"]
    if len(with_efa) > type_.max_efa_interfaces:
        faults.append(f"{len(with_efa)} EFA interfaces, {type_.name} takes {type_.max_efa_interfaces}")
    for card in sorted({card for card, _ in places}):
        if card >= type_.network_card_count:
            faults.append(f"network card {card}, {type_.name} has {type_.network_card_count}")
        else:
            faults += _card_faults([i for i in layout if i.network_card_index == card], card, type_)
    return faults


def _card_faults(layout: Sequence[NetworkInterface], index: int, type_: InstanceType) -> list[str]:
    card, where, faults = type_.card(index), f"card {index} of {type_.name}", []
    # Indexes count from 0 on each card, not over all cards.
    highest = max(interface.device_index for interface in layout)
    if card.max_interfaces is not None and highest >= card.max_interfaces:
        faults.append(f"device index {highest} on {where} is too high")
    efas = sum(interface.interface_type != "interface" for interface in layout)
    if efas > card.efa:  # one a card, on those that carry any: p6-b300 has none on card 0
        faults.append(f"{efas} EFA interfaces on {where}")
    if not card.ena and any(interface.interface_type != "efa-only" for interface in layout):
        faults.append(f"an interface with an address on {where}, which carries EFA only")
    return faults
