"""EC2 GPU instance types: what the hardware is, which network cards it has and where it is offered.

The data file lists families; a size adds what is its own to the facts of its family.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from .lookup import Facts, Row, UnknownName, read_rows

Architecture = Literal["x86_64", "arm64"]
BootMode = Literal["legacy-bios", "uefi"]
Driver = Literal["open", "proprietary", "grid"]
InterfaceType = Literal["interface", "efa", "efa-only"]
PurchaseOption = Literal["on-demand", "spot", "capacity-block"]

# Told by name in the release notes of Deep Learning AMIs (2026-10), without any specification.
NAMES_WITHOUT_FACTS = ("p6e-gb300",)


class NetworkInterface(NamedTuple):
    """One interface of a launch template in EC2's own terms; the device index counts per card."""

    network_card_index: int
    device_index: int
    interface_type: InterfaceType


class Gpu(Facts):
    """The GPUs of one instance.

    ``count`` is what a program sees and never zero: a fractional type has one GPU, of which ``partition`` is the
    part of the physical one (the API counts 0 there). The memory is of what is seen, as the EC2 API reports it.
    """

    manufacturer: str
    model: str
    count: int
    partition: float
    memory_mib_each: int
    compute_capability: str
    nvlink: bool | None  # NVLink or NVSwitch between them; None: not known

    @property
    def text(self) -> str:
        """``8 H100``, or ``1/8 L4`` for a part of one."""
        return (
            f"{self.count} {self.model}"
            if self.partition == 1
            else f"1/{round(1 / self.partition)} {self.model}"
        )

    @property
    def memory_gib_each(self) -> float:
        return self.memory_mib_each / 1024

    @property
    def memory_label_gb(self) -> int:
        """The memory as people say it. Labels are of two kinds, and the API's figure tells which.

        Whole GiB are the label itself (H100: 81920 MiB, "80 GB"); anything else is a label in decimal GB
        (A10G: 22888 MiB, which are 24 * 10^9 bytes).
        """
        if self.memory_mib_each % 1024 == 0:
            return self.memory_mib_each // 1024
        return round(self.memory_mib_each * 2**20 / 1e9)


class NetworkCards(Facts):
    """The network cards ``first_index`` to ``last_index``, which are alike."""

    first_index: int
    last_index: int
    max_interfaces: int | None  # of one card; None: not known
    efa: bool  # the card can carry one EFA
    ena: bool = True  # the card can carry an interface with an address


class InstanceStore(Facts):
    """Local NVMe disks; their contents vanish when the instance stops."""

    disks: int
    gb_each: int


class Ebs(Facts):
    """What the type does with EBS volumes."""

    baseline_mbps: int
    max_mbps: int
    max_iops: int
    max_attachments: int
    attachments_are_shared: bool  # volumes, network interfaces and NVMe disks count together


class QuotaCodes(Facts):
    """Service Quotas codes, in vCPUs; None where no documented code was found."""

    on_demand: str | None
    spot: str | None


class InstanceType(Row):
    """One EC2 instance type; None is a fact that was not found, and nothing is guessed.

    The number of EFAs is ``max_efa_interfaces`` and never the number of cards: p6-b300 has 17 cards and 16 EFAs.
    """

    name: str
    family: str
    architecture: Architecture
    status: Literal[
        "current", "previous", "legacy"
    ]  # legacy: DescribeInstanceTypes does not list it any more
    driver: Driver  # the NVIDIA kernel module that its GPUs need, or that is advised where several do
    boot_modes: tuple[BootMode, ...] | None
    bare_metal: bool
    vcpus: int
    memory_gib: float
    gpu: Gpu
    network_baseline_gbps: float | None
    max_network_interfaces: int | None
    network_cards: tuple[NetworkCards, ...]
    max_efa_interfaces: int
    efa_cards: tuple[int, ...] | None = None  # the cards of the recommended layout; None: every card with EFA
    # Cards whose second, plain interface raises the IP bandwidth to its maximum; empty: one address has it all.
    bandwidth_cards: tuple[int, ...] = ()
    efa_reaches_own_type_only: bool = False  # no EFA traffic with nodes of another type
    rdma_read: bool | None
    rdma_write: bool | None
    instance_store: InstanceStore | None  # None: it has none
    ebs: Ebs | None
    cluster_placement: bool | None  # may be in a placement group of strategy cluster
    purchase_options: tuple[PurchaseOption, ...]
    # Region -> zone ids that offer it, for the regions that were read; () is a region that was read and has none.
    zone_ids: dict[str, tuple[str, ...]]
    regions: tuple[str, ...] | None
    vcpu_quota_codes: QuotaCodes
    notes: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()

    @property
    def efa_on_card0(self) -> bool:
        return self.network_cards[0].efa

    @property
    def network_card_count(self) -> int:
        return self.network_cards[-1].last_index + 1

    @property
    def efa_layout(self) -> tuple[NetworkInterface, ...]:
        """The interfaces of an EFA node as the EC2 user guide recommends them; empty where the type has no EFA.

        One plain interface with the address on card 0, and EFA-only ones, which take no address: at device 1
        beside the plain one, at device 0 of every other card.
        """
        if self.max_efa_interfaces == 0:
            return ()
        cards = self.efa_cards
        if cards is None:
            cards = tuple(index for index in range(self.network_card_count) if self.card(index).efa)
        plain = NetworkInterface(0, 0, "interface")
        return (plain, *(NetworkInterface(card, 1 if card == 0 else 0, "efa-only") for card in cards))

    def card(self, network_card_index: int) -> NetworkCards:
        """The facts of one card; IndexError for a card the type does not have."""
        for cards in self.network_cards:
            if cards.first_index <= network_card_index <= cards.last_index:
                return cards
        raise IndexError(f"{self.name} has no network card {network_card_index}")

    def max_interfaces_on(self, network_card_index: int) -> int | None:
        """How many interfaces the card takes, None where it is not known; IndexError for an unknown card."""
        return self.card(network_card_index).max_interfaces


def _sizes(families: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for family in families:
        common = {key: value for key, value in family.items() if key != "sizes"}
        yield from ({**common, **size} for size in family["sizes"])


INSTANCE_TYPES: dict[str, InstanceType] = {
    row["name"]: InstanceType.model_validate(row) for row in _sizes(read_rows("instance_types.json"))
}
REGIONS = frozenset(region for type_ in INSTANCE_TYPES.values() for region in type_.regions or ())


def instance_type(name: str) -> InstanceType:
    """The row of an instance type; raises UnknownName with the nearest match."""
    try:
        return INSTANCE_TYPES[name]
    except KeyError:
        raise UnknownName("instance type", name, INSTANCE_TYPES) from None
