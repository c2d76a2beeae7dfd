"""What a stack costs besides its nodes: what stands, and prices of what is billed by use. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from components.catalog import item_price
from components.monitoring.alarms import group_alarms
from components.network.plan import interface_endpoints, nat_zones
from components.settings import Settings

from .lines import Line, line_of, monthly, usage
from .nodes import is_block

DASHBOARDS = 1


def standing_lines(settings: Settings) -> Iterator[Line]:
    yield from _network(settings)
    yield from _storage(settings)
    yield from _keys(settings)
    yield from _monitoring(settings)


def notes(settings: Settings) -> list[str]:
    """What the reader might miss in the lines, and why it is not there."""
    found = ["free tiers, discounts, data transfer, requests and taxes are not in it"]
    if settings.network.existing is not None:
        found.append("the VPC exists already: its NAT gateways and endpoints are billed where they were made")
    if settings.monitoring.cluster == "existing":
        found.append("the Kubernetes cluster exists already and costs nothing here: the stack makes none")
    for group in settings.gpu_groups:
        reserved = group.reservation
        if reserved is not None and is_block(group):
            found.append(f"{group.name}: capacity block {reserved.id} was paid when it was bought")
        elif reserved is not None:
            found.append(
                f"{group.name}: the {reserved.count} instances of reservation {reserved.id} are billed on demand "
                "whether nodes run in them or not"
            )
    return found


def _network(settings: Settings) -> Iterator[Line]:
    region, network = settings.region, settings.network
    gateways = 0 if network.existing else len(nat_zones(network.nat, network.availability_zones))
    if gateways:
        yield line_of("standing", "NAT gateways", gateways, [item_price("nat-gateway-hour", region)])
        yield line_of("standing", "public IPv4 addresses", gateways, [item_price("public-ipv4-hour", region)])
        yield usage("GB through NAT", item_price("nat-gateway-gb", region))
    endpoints = len(interface_endpoints(settings)) * len(network.availability_zones)
    if endpoints:
        price = item_price("interface-endpoint-hour", region)
        yield line_of("standing", "interface endpoints, one a service and zone", endpoints, [price])
        yield usage("GB through interface endpoints", item_price("interface-endpoint-gb", region))


def _storage(settings: Settings) -> Iterator[Line]:
    region, lustre = settings.region, settings.lustre
    if lustre is not None:
        kind, tier = "scratch-2", ""
        if lustre.deployment == "PERSISTENT_2":
            kind, tier = "persistent-2", f"-{lustre.throughput_mbps_per_tib or 125}"
        price = item_price(f"fsx-lustre-{kind}{tier}-gib-month", region)
        speed = f", {tier[1:]} MB/s a TiB" if tier else ""
        yield monthly(f"GiB of FSx for Lustre, {lustre.deployment}{speed}", lustre.capacity_gib, price)
        if lustre.metadata_iops is not None:
            # FSx bills those above what the capacity gives; how many these are is not known to the catalog.
            price = item_price("fsx-lustre-metadata-iops-month", region)
            yield monthly("FSx metadata IOPS", lustre.metadata_iops, price)
    yield usage("GB-month of S3 Standard", item_price("s3-standard-gb-month", region))


def _keys(settings: Settings) -> Iterator[Line]:
    if settings.kms.mode == "create":
        yield monthly("KMS keys", 1, item_price("kms-key-month", settings.region))
    if settings.secrets:
        count = len(set(settings.secrets.values()))
        yield monthly("secrets that nodes read", count, item_price("secret-month", settings.region))


def _monitoring(settings: Settings) -> Iterator[Line]:
    region = settings.region
    price = item_price("cloudwatch-alarm-month", region)
    yield monthly("CloudWatch alarms, by the metrics they watch", _alarm_metrics(settings), price)
    yield monthly("CloudWatch dashboards", DASHBOARDS, item_price("cloudwatch-dashboard-month", region))
    yield usage("custom or detailed metric a month", item_price("cloudwatch-metric-month", region))
    yield usage("GB of logs taken in", item_price("log-ingestion-gb", region))
    yield usage("GB-month of logs kept", item_price("log-storage-gb-month", region))


def _alarm_metrics(settings: Settings) -> int:
    """CloudWatch bills an alarm once for each metric of its expression (price page, Alarms)."""
    alarms = [
        alarm
        for group in settings.gpu_groups
        for alarm in group_alarms(
            group.name,
            buys_spot=group.purchase.spot_percent > 0,
            idle_stop_minutes=group.idle_stop_minutes,
            fallback_group=group.fallback_group,
        )
    ]
    return sum(max(1, len(alarm.metrics)) for alarm in alarms)
