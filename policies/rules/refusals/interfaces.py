"""Network interfaces of a launch template that EC2 refuses, or that carry no EFA.

The four checks of the EFA guide and of those who launch such nodes (EC2 user guide, efa-acc-inst-types, 2026;
Karpenter's validation): the card exists, the device index is below the card's interfaces, one EFA a card at
most, no more EFAs than the type has; and the primary interface is there and carries addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from .._judge import UNKNOWN, is_true, leaves, read
from ._catalog import INSTANCE_TYPES
from ._validator import Found, Inputs, Validator, known, number

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
KINDS = ("interface", "efa", "efa-only")
EFA_KINDS = ("efa", "efa-only")


def _interfaces(inputs: Inputs) -> list[tuple[str, int | None, int | None, str | None]]:
    """Path, card, device and kind of each; None for what is not known yet. Absent means 0 and `interface`."""
    found: list[tuple[str, int | None, int | None, str | None]] = []
    for at, one in leaves(inputs, "networkInterfaces[*]"):
        if one is UNKNOWN:
            found.append((at, None, None, None))
        elif one is not None:
            kind = read(one, "interfaceType")
            place = [_index(read(one, key)) for key in ("networkCardIndex", "deviceIndex")]
            found.append((at, place[0], place[1], None if kind is UNKNOWN else str(kind or "interface")))
    return found


def _index(value: Any) -> int | None:
    if value is UNKNOWN:
        return None
    as_number = number(value)
    return 0 if as_number is None else int(as_number)


def interface_type_exists(inputs: Inputs) -> Iterator[Found]:
    """`interface`, `efa` or `efa-only` (botocore ec2 model, 2026)."""
    for at, _, _, kind in _interfaces(inputs):
        if kind is not None and kind not in KINDS:
            yield f"{at}.interfaceType: '{kind}' is none of {', '.join(KINDS)}"


def interface_places_are_taken_once(inputs: Inputs) -> Iterator[Found]:
    """Two interfaces with one card and one device index."""
    places = Counter((card, device) for _, card, device, _ in _interfaces(inputs))
    for (card, device), count in places.items():
        if count > 1 and card is not None and device is not None:
            yield f"networkInterfaces: {count} of them at card {card}, device {device}"


def primary_interface_carries_addresses(inputs: Inputs) -> Iterator[Found]:
    """Card 0, device 0 is there, and is not `efa-only`, which has no address."""
    interfaces = _interfaces(inputs)
    if not interfaces or any(None in one for one in interfaces):
        return
    primary = [(at, kind) for at, card, device, kind in interfaces if (card, device) == (0, 0)]
    if not primary:
        yield "networkInterfaces: none at card 0, device 0"
    for at, kind in primary:
        if kind == "efa-only":
            yield f"{at}.interfaceType: the primary interface is efa-only"


def one_interface_has_a_public_address(inputs: Inputs) -> Iterator[Found]:
    """`associatePublicIpAddress` with more than one interface, counted by interfaces and not by cards
    (aws-parallelcluster PR 7457).
    """
    interfaces = list(leaves(inputs, "networkInterfaces[*].associatePublicIpAddress"))
    if len(interfaces) > 1:
        for at, public in interfaces:
            if public is not UNKNOWN and is_true(public):
                yield f"{at}: true, with {len(interfaces)} interfaces"


def addresses_are_not_given_to_efa_only(inputs: Inputs) -> Iterator[Found]:
    """An `efa-only` interface takes no address."""
    for at, one in leaves(inputs, "networkInterfaces[*]"):
        if one is UNKNOWN or one is None or known(read(one, "interfaceType")) != "efa-only":
            continue
        for key in (
            "privateIpAddress",
            "ipv4AddressCount",
            "ipv4Addresses",
            "ipv6AddressCount",
            "ipv6Addresses",
        ):
            if known(read(one, key)):
                yield f"{at}.{key}: on an efa-only interface"


def efas_are_one_a_card(inputs: Inputs) -> Iterator[Found]:
    """Each network card carries one EFA at most."""
    cards = Counter(card for _, card, _, kind in _interfaces(inputs) if kind in EFA_KINDS)
    for card, count in cards.items():
        if count > 1 and card is not None:
            yield f"networkInterfaces: {count} EFAs on card {card}"


def cards_and_devices_are_of_the_type(inputs: Inputs) -> Iterator[Found]:
    """The device index counts within a card (eksctl#7520), and the card must be one of the type's."""
    name = known(read(inputs, "instanceType"))
    if name in INSTANCE_TYPES:
        yield from misplaced(inputs, name)


def efas_are_no_more_than_the_type_has(inputs: Inputs) -> Iterator[Found]:
    """On cards that carry one, as many as `MaximumEfaInterfaces`, never the number of cards (p6-b300: 17 cards,
    16 EFAs, none on card 0; eksctl#8685, aws-parallelcluster#7143).
    """
    name = known(read(inputs, "instanceType"))
    if name in INSTANCE_TYPES:
        yield from too_many_efas(inputs, name)


def misplaced(inputs: Inputs, name: str) -> Iterator[Found]:
    type_ = INSTANCE_TYPES[name]
    for at, card, device, _ in _interfaces(inputs):
        if card is None or device is None:
            continue
        if not 0 <= card < type_.network_card_count:
            yield f"{at}.networkCardIndex: {name} has cards 0 to {type_.network_card_count - 1}, not {card}"
            continue
        most = type_.max_interfaces_on(card)  # not known of types that no document describes
        if most is not None and not 0 <= device < most:
            yield f"{at}.deviceIndex: card {card} of {name} takes {most} interfaces, so {device} is none of them"
    count, most = len(_interfaces(inputs)), type_.max_network_interfaces
    if most is not None and count > most:
        yield f"networkInterfaces: {count} of them, {name} takes {most}"


def too_many_efas(inputs: Inputs, name: str) -> Iterator[Found]:
    type_ = INSTANCE_TYPES[name]
    efas = [(at, card) for at, card, _, kind in _interfaces(inputs) if kind in EFA_KINDS]
    if len(efas) > type_.max_efa_interfaces:
        yield f"networkInterfaces: {len(efas)} EFAs, {name} has {type_.max_efa_interfaces}"
    for at, card in efas:
        if card == 0 and type_.max_efa_interfaces > 0 and not type_.efa_on_card0:
            yield f"{at}.networkCardIndex: card 0 of {name} carries no EFA"


_TEMPLATE = frozenset({TEMPLATE})
VALIDATORS = (
    Validator(interface_type_exists, _TEMPLATE, "interface, efa or efa-only"),
    Validator(
        interface_places_are_taken_once, _TEMPLATE, "network_card_index and device_index on each interface"
    ),
    Validator(primary_interface_carries_addresses, _TEMPLATE, "a plain interface at card 0, device 0"),
    Validator(
        one_interface_has_a_public_address,
        _TEMPLATE,
        "no public address; private subnets and Session Manager",
    ),
    Validator(addresses_are_not_given_to_efa_only, _TEMPLATE, "addresses on the plain interface alone"),
    Validator(efas_are_one_a_card, _TEMPLATE, "one EFA a card"),
    Validator(
        cards_and_devices_are_of_the_type,
        _TEMPLATE,
        "device index 0 on card 0, and from 0 on each other card",
    ),
    Validator(efas_are_no_more_than_the_type_has, _TEMPLATE, "the layout of `make catalog`"),
)
