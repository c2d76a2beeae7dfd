"""EC2 GPU instance types: what the hardware is, which network cards it has and where it is offered."""

from __future__ import annotations

from typing import Literal, NamedTuple

from .lookup import Facts, Row, UnknownName, read_rows

InterfaceType = Literal["interface", "efa", "efa-only"]
PurchaseOption = Literal["on-demand", "spot", "capacity-block"]


class NetworkInterface(NamedTuple):
    """One interface of a launch template in EC2's own terms; the device index counts per card."""

    network_card_index: int
    device_index: int
    interface_type: InterfaceType


class Gpu(Facts):
    """The GPUs of one instance; the memory is what the EC2 API reports, a little below the label."""

    manufacturer: str
    model: str
    count: int
    memory_mib_each: int
    compute_capability: str

    @property
    def memory_gib_each(self) -> float:
        return self.memory_mib_each / 1024


class NetworkCards(Facts):
    """The network cards ``first_index`` to ``last_index``, which are alike."""

    first_index: int
    last_index: int
    max_interfaces: int  # of one card
    efa: bool  # the card can carry one EFA


class InstanceStore(Facts):
    """Local NVMe disks; their contents vanish when the instance stops."""

    disks: int
    gb_each: int


class QuotaCodes(Facts):
    """Service Quotas codes, in vCPUs; None where no documented code was found."""

    on_demand: str | None
    spot: str | None


class InstanceType(Row):
    """One EC2 instance type.

    ``efa_layout`` lists the interfaces of an EFA node as the EC2 user guide recommends them: one plain
    interface with the address on card 0, EFA-only interfaces beside it. It is empty where the type has no
    EFA. The number of EFAs is ``max_efa_interfaces`` and never the number of cards: p6-b300 has 17 cards and
    16 EFAs.
    """

    name: str
    family: str
    architecture: Literal["x86_64", "arm64"]
    vcpus: int
    memory_gib: float
    gpu: Gpu
    network_baseline_gbps: float
    max_network_interfaces: int
    network_cards: tuple[NetworkCards, ...]
    max_efa_interfaces: int
    efa_layout: tuple[NetworkInterface, ...]
    instance_store: InstanceStore
    ebs_baseline_mbps: int
    cluster_placement: bool  # may be in a placement group of strategy cluster
    purchase_options: tuple[PurchaseOption, ...]
    zone_ids: dict[str, tuple[str, ...]]  # region -> zone ids that offer it, for the regions that were read
    regions: tuple[str, ...]
    vcpu_quota_codes: QuotaCodes

    @property
    def efa_on_card0(self) -> bool:
        return self.network_cards[0].efa

    @property
    def network_card_count(self) -> int:
        return self.network_cards[-1].last_index + 1

    def max_interfaces_on(self, network_card_index: int) -> int:
        """How many interfaces the card takes; IndexError for a card the type does not have."""
        for cards in self.network_cards:
            if cards.first_index <= network_card_index <= cards.last_index:
                return cards.max_interfaces
        raise IndexError(f"{self.name} has no network card {network_card_index}")


INSTANCE_TYPES: dict[str, InstanceType] = {
    row["name"]: InstanceType.model_validate(row) for row in read_rows("instance_types.json")
}
REGIONS = frozenset(region for type_ in INSTANCE_TYPES.values() for region in type_.regions)


def instance_type(name: str) -> InstanceType:
    """The row of an instance type; raises UnknownName with the nearest match."""
    try:
        return INSTANCE_TYPES[name]
    except KeyError:
        raise UnknownName("instance type", name, INSTANCE_TYPES) from None
