"""`make catalog`: the GPU instance types that the program knows, by need and by price; CHECK=1 asks EC2 about them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import boto3
from botocore.exceptions import ProfileNotFound
from rich import box
from rich.console import Console
from rich.table import Table

from components.catalog import (
    REGIONS,
    InstanceType,
    find_types,
    images_for,
    nearest,
    spot_price,
    why_unserved,
)
from components.catalog.find import PRICED_REGION, listed_price

from .catalog_check import check
from .command import guarded
from .refusal import EXIT_FINDINGS, EXIT_NO_CREDENTIALS, EXIT_OK, Refused

HEADINGS = (
    "type",
    "GPUs",
    "GB",
    "vCPU",
    "GiB",
    "Gbps",
    "EFA",
    "TB",
    "sold",
    "USD/h",
    "/GPU",
    "spot",
    "image",
)
TABLE_WIDTH = 118
MOST_WITH_NOTES = 8
SOLD_AS = {"on-demand": "d", "spot": "s", "capacity-block": "b"}


def main(arguments: Sequence[str] | None = None) -> int:
    chosen = parser().parse_args(arguments)
    return guarded("catalog", lambda: run(chosen))


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="make catalog", description=__doc__)
    made.add_argument("--gpus", type=int, help="whole GPUs a node, at least (GPUS=8)")
    made.add_argument("--gib", type=int, help="memory of each, by its label, at least (GIB=80)")
    made.add_argument("--efa", action="store_true", help="with EFA only (EFA=1)")
    made.add_argument("--capacity-block", action="store_true", help="sold in capacity blocks (BLOCK=1)")
    made.add_argument("--architecture", choices=["x86_64", "arm64"], help="(ARCH=arm64)")
    made.add_argument("--region", help="offered there, at the prices there (REGION=us-west-2)")
    made.add_argument("--json", action="store_true", help="every fact, as JSON (JSON=1)")
    made.add_argument(
        "--check", action="store_true", help="compare with EC2, with your credentials (CHECK=1)"
    )
    return made


def run(chosen: argparse.Namespace) -> int:
    """Exit code 1 where EC2 says otherwise, 3 without credentials, 2 for a region that is none."""
    if chosen.region is not None and chosen.region not in REGIONS:
        close = nearest(chosen.region, REGIONS)
        hint = f" (nearest match: {close})" if close else ""
        raise Refused(f"'{chosen.region}' is no region that offers a type of the catalog{hint}")
    if chosen.check:
        return compared(chosen.region or PRICED_REGION)
    types = find_types(
        gpus=chosen.gpus,
        gpu_memory_gib=chosen.gib,
        efa=chosen.efa or None,
        region=chosen.region,
        capacity_block=chosen.capacity_block or None,
        architecture=chosen.architecture,
    )
    if not types:
        raise Refused("no instance type of the catalog has all of that", EXIT_FINDINGS)
    if chosen.json:
        print(json.dumps([as_json(type_, chosen.region) for type_ in types], indent=1))
    else:
        show(types, chosen.region)
    return EXIT_OK


def compared(region: str) -> int:
    """What the region's EC2 API says otherwise. Raises Refused without credentials."""
    try:
        session = boto3.Session(region_name=region)
    except ProfileNotFound as error:
        raise Refused(f"{error}: set AWS_PROFILE to one that exists", EXIT_NO_CREDENTIALS) from None
    if session.get_credentials() is None:
        raise Refused(
            "CHECK=1 asks EC2 and there are no AWS credentials: log in (aws sso login) or set AWS_PROFILE",
            EXIT_NO_CREDENTIALS,
        )
    found = check(session.client("ec2"), region)
    print("\n".join(found) or f"EC2 in {region} says what the catalog says")
    return EXIT_FINDINGS if found else EXIT_OK


def show(types: Sequence[InstanceType], region: str | None) -> None:
    """The types as a table, and below it what one must know to read it."""
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for heading in HEADINGS:
        left = heading in ("type", "GPUs", "sold", "image")
        made.add_column(heading, justify="left" if left else "right", no_wrap=True)
    for type_ in types:
        made.add_row(*cells(type_, region))
    # A narrow terminal breaks the lines; rich would leave out columns.
    Console(width=max(Console().width, TABLE_WIDTH)).print(made)
    print("\n" + "\n".join(legend(types, region)))


def legend(types: Sequence[InstanceType], region: str | None) -> list[str]:
    prices = [price for type_ in types if (price := listed_price(type_, region)) is not None]
    days = " and ".join(sorted({str(price.as_of) for price in prices})) or "no day"
    where = region or PRICED_REGION
    if where != PRICED_REGION:
        where += f" (* {PRICED_REGION}, where the region's own price was not read)"
    lines = [
        f"{len(types)} types. USD/h: on demand, Linux, {where}, as of {days}. Spot: an order of magnitude, 2025.",
        "GB: memory of each GPU, by its label. Gbps: baseline. TB: NVMe. sold: d on demand, s spot, b capacity block.",
        "image: p with PyTorch, b base image with torch from the release, - none.",
    ]
    unserved = {type_.family: why for type_ in types if (why := why_unserved(type_)) is not None}
    lines += [f"  {family}: {why}" for family, why in unserved.items()]
    if len(types) <= MOST_WITH_NOTES:
        lines += [f"{type_.name}: {note}" for type_ in types for note in type_.notes]
        lines += [f"{type_.name}: not verified: {what}" for type_ in types for what in type_.unverified]
    return lines


def cells(type_: InstanceType, region: str | None) -> list[str]:
    gpu, store, price = type_.gpu, type_.instance_store, listed_price(type_, region)
    spot = spot_price(type_.name, region or PRICED_REGION)
    images = images_for(type_)
    own = price is None or price.region == (region or PRICED_REGION)
    whole = gpu.count * gpu.partition
    return [
        type_.name,
        gpu.text,
        str(gpu.memory_label_gb),
        str(type_.vcpus),
        f"{type_.memory_gib:g}",
        "?" if type_.network_baseline_gbps is None else f"{type_.network_baseline_gbps:g}",
        str(type_.max_efa_interfaces or "-"),
        "-" if store is None else f"{store.disks * store.gb_each / 1000:.1f}",
        "".join(SOLD_AS[option] for option in type_.purchase_options),
        "?" if price is None else f"{price.low_usd:.2f}{'' if own else '*'}",
        "?" if price is None else f"{price.low_usd / whole:.2f}",
        "?" if spot is None else "-".join(sorted({f"{spot.low_usd:.2f}", f"{spot.high_usd:.2f}"}, key=float)),
        "p" if any("pytorch" in name for name in images) else "b" if images else "-",
    ]


def as_json(type_: InstanceType, region: str | None) -> dict[str, Any]:
    """Every fact of the type, its prices with their dates, and the image profiles that serve it."""
    price, spot = listed_price(type_, region), spot_price(type_.name, region or PRICED_REGION)
    return {
        **type_.model_dump(mode="json", by_alias=True),
        "efaLayout": type_.efa_layout,
        "onDemandPrice": None if price is None else price.model_dump(mode="json", by_alias=True),
        "spotPrice": None if spot is None else spot.model_dump(mode="json", by_alias=True),
        "images": images_for(type_),
        "whyNoImage": why_unserved(type_),
    }


if __name__ == "__main__":
    sys.exit(main())
