"""The catalog's facts beside those that EC2 gives in an account."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from components.catalog import INSTANCE_TYPES, InstanceType


def check(ec2: Any, region: str) -> list[str]:
    """What EC2 says otherwise about the region, one line each; ``ec2`` is a client of boto3.

    A type that EC2 does not list is told where the catalog says that the region offers it.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    every = [{"Name": "instance-type", "Values": ["g*", "p*"]}]  # every family of the catalog, and newer ones
    for page in ec2.get_paginator("describe_instance_types").paginate(Filters=every):
        rows.update({row["InstanceType"]: row for row in page["InstanceTypes"]})
    zones: dict[str, set[str]] = {}
    known = [{"Name": "instance-type", "Values": sorted(INSTANCE_TYPES)}]
    offerings = ec2.get_paginator("describe_instance_type_offerings")
    for page in offerings.paginate(LocationType="availability-zone-id", Filters=known):
        for offer in page["InstanceTypeOfferings"]:
            zones.setdefault(offer["InstanceType"], set()).add(offer["Location"])
    return list(differences(INSTANCE_TYPES.values(), rows, zones, region))


def differences(
    types: Iterable[InstanceType],
    rows: Mapping[str, Mapping[str, Any]],
    zones: Mapping[str, set[str]],
    region: str,
) -> Iterator[str]:
    """One line for each fact that differs. ``rows`` are DescribeInstanceTypes', by name; ``zones`` the zone ids."""
    known = {type_.name: type_ for type_ in types}
    for name, type_ in known.items():
        if name not in rows:
            if region in (type_.regions or ()):
                yield f"{name}: EC2 does not list it, the catalog says that {region} offers it"
            continue
        mine, theirs = facts_of(type_), facts_of_ec2(rows[name])
        for fact, value in theirs.items():
            if mine[fact] is not None and mine[fact] != value:
                yield f"{name}: {fact} is {_shown(value)} by EC2, {_shown(mine[fact])} in the catalog"
        offered = type_.zone_ids.get(region)
        found = {zone for zone in zones.get(name, set()) if zone.count("-") == 1}  # without local zones
        if offered is not None and set(offered) != found:
            yield f"{name}: zones are {_shown(found)} by EC2, {_shown(set(offered))} in the catalog"
    for name in sorted(rows.keys() - known.keys()):
        gpus = rows[name].get("GpuInfo", {}).get("Gpus", [])
        if any(gpu.get("Manufacturer") == "NVIDIA" for gpu in gpus):
            yield f"{name}: EC2 has it, the catalog does not"


def facts_of(type_: InstanceType) -> dict[str, Any]:
    """The facts that DescribeInstanceTypes tells, by name; None where the catalog does not know."""
    gpu, store, ebs = type_.gpu, type_.instance_store, type_.ebs
    cards = [type_.card(index) for index in range(type_.network_card_count)]
    return {
        "architecture": type_.architecture,
        "current generation": None if type_.status == "legacy" else type_.status == "current",
        "boot modes": None if type_.boot_modes is None else set(type_.boot_modes),
        "bare metal": type_.bare_metal,
        "vCPUs": type_.vcpus,
        "memory GiB": type_.memory_gib,
        "GPU": f"{gpu.manufacturer} {gpu.model}",
        "GPUs": gpu.count,
        "part of a GPU": gpu.partition,
        "GPU memory MiB": gpu.memory_mib_each,
        "network interfaces": type_.max_network_interfaces,
        "interfaces by card": _all_known([card.max_interfaces for card in cards]),
        "cards with EFA": {index for index, card in enumerate(cards) if card.efa},
        "EFA interfaces": type_.max_efa_interfaces,
        "NVMe disks": (store.disks, store.gb_each) if store else (0, 0),
        "EBS Mbps": (ebs.baseline_mbps, ebs.max_mbps) if ebs else None,
        "EBS IOPS": ebs.max_iops if ebs else None,
        "EBS attachments": (ebs.max_attachments, ebs.attachments_are_shared) if ebs else None,
        "cluster placement": type_.cluster_placement,
        "usage classes": set(type_.purchase_options),
    }


def facts_of_ec2(row: Mapping[str, Any]) -> dict[str, Any]:
    """The same facts from one row of DescribeInstanceTypes."""
    (gpu,), network = row["GpuInfo"]["Gpus"], row["NetworkInfo"]
    cards = sorted(network["NetworkCards"], key=lambda card: card["NetworkCardIndex"])
    disks = row.get("InstanceStorageInfo", {}).get("Disks", [{"Count": 0, "SizeInGB": 0}])[0]
    ebs = row["EbsInfo"]
    return {
        "architecture": row["ProcessorInfo"]["SupportedArchitectures"][0],
        "current generation": row["CurrentGeneration"],
        "boot modes": set(row["SupportedBootModes"]),
        "bare metal": row["BareMetal"],
        "vCPUs": row["VCpuInfo"]["DefaultVCpus"],
        "memory GiB": row["MemoryInfo"]["SizeInMiB"] / 1024,
        "GPU": f"{gpu['Manufacturer']} {gpu['Name']}",
        "GPUs": gpu.get("LogicalGpuCount", gpu["Count"]),
        "part of a GPU": gpu.get("GpuPartitionSize", 1.0),
        "GPU memory MiB": gpu["MemoryInfo"]["SizeInMiB"],
        "network interfaces": network["MaximumNetworkInterfaces"],
        "interfaces by card": [card["MaximumNetworkInterfaces"] for card in cards],
        "cards with EFA": {
            card["NetworkCardIndex"] for card in cards if "efa-only" in card.get("InterfaceTypes", [])
        },
        "EFA interfaces": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "NVMe disks": (disks["Count"], disks["SizeInGB"]),
        "EBS Mbps": (
            ebs["EbsOptimizedInfo"]["BaselineBandwidthInMbps"],
            ebs["EbsOptimizedInfo"]["MaximumBandwidthInMbps"],
        ),
        "EBS IOPS": ebs["EbsOptimizedInfo"]["MaximumIops"],
        "EBS attachments": (ebs["MaximumEbsAttachments"], ebs["AttachmentLimitType"] == "shared"),
        "cluster placement": "cluster" in row["PlacementGroupInfo"]["SupportedStrategies"],
        "usage classes": set(row["SupportedUsageClasses"]),
    }


def _all_known(values: list[int | None]) -> list[int] | None:
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else None


def _shown(value: object) -> str:
    return (", ".join(map(str, sorted(value))) or "none") if isinstance(value, set) else str(value)
