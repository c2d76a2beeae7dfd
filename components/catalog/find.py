"""Instance types by what a training needs instead of by name."""

from __future__ import annotations

import math

from .instance_types import INSTANCE_TYPES, Architecture, InstanceType
from .prices import Price, on_demand_price

PRICED_REGION = "us-east-1"  # the region whose list prices the catalog has for every type that has one


def find_types(
    *,
    gpus: int | None = None,
    gpu_memory_gib: int | None = None,
    efa: bool | None = None,
    region: str | None = None,
    capacity_block: bool | None = None,
    spot: bool | None = None,
    architecture: Architecture | None = None,
) -> list[InstanceType]:
    """The types that have at least what is asked for, the cheapest on demand first; None asks for nothing.

    ``gpus`` are whole GPUs: a type with an eighth of one has none. ``gpu_memory_gib`` is of each GPU and by its
    label, as people say it: 80 finds H100 (81920 MiB), 24 finds A10G, whose 24 GB are decimal (22888 MiB).
    ``region`` leaves out types of which it is not known that the region offers them. Prices are those of
    ``listed_price``; a type without one comes last.
    """
    found = [
        type_
        for type_ in INSTANCE_TYPES.values()
        if (gpus is None or type_.gpu.count * type_.gpu.partition >= gpus)
        and (gpu_memory_gib is None or type_.gpu.memory_label_gb >= gpu_memory_gib)
        and (efa is None or (type_.max_efa_interfaces > 0) == efa)
        and (region is None or region in (type_.regions or ()))
        and (capacity_block is None or ("capacity-block" in type_.purchase_options) == capacity_block)
        and (spot is None or ("spot" in type_.purchase_options) == spot)
        and (architecture is None or type_.architecture == architecture)
    ]

    def order(type_: InstanceType) -> tuple[float, str]:
        price = listed_price(type_, region)
        return (math.inf if price is None else price.low_usd, type_.name)

    return sorted(found, key=order)


def listed_price(type_: InstanceType, region: str | None) -> Price | None:
    """The on-demand price in the region, or in us-east-1 where the region's own was not read."""
    own = None if region is None else on_demand_price(type_.name, region)
    return own or on_demand_price(type_.name, PRICED_REGION)
