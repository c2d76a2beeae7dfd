"""An existing VPC: whether nodes can live in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from components.compute.plan import GroupPlan
from components.settings import Settings
from components.settings.model import ExistingNetwork
from ops.account import Account, code_of

from .finding import Check, Finding, fail, ok, warn

# Without a way to the Internet, these are what a node cannot boot or be reached without.
NEEDED_ENDPOINTS = ("s3", "autoscaling", "logs", "monitoring", "ssm", "ssmmessages")


@dataclass(frozen=True)
class Vpc:
    """What AWS says of an existing VPC."""

    exists: bool
    dns_support: bool = False
    dns_hostnames: bool = False
    subnets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by id
    ways_out: Mapping[str, str] = field(
        default_factory=dict
    )  # subnet -> nat | internet gateway | other target
    endpoints: frozenset[str] = frozenset()  # last parts of the service names


def checks(account: Account, settings: Settings, plans: Sequence[GroupPlan]) -> list[Check]:
    existing = settings.network.existing
    if existing is None:
        return []
    return [
        Check(
            "existing VPC",
            existing.vpc_id,
            "ec2:DescribeVpcs, DescribeSubnets, DescribeRouteTables, DescribeVpcEndpoints, DescribeVpcAttribute",
            lambda: verdicts(existing, _needed_addresses(plans), _ask(account, existing)),
        )
    ]


def verdicts(existing: ExistingNetwork, needed: Mapping[str, int], vpc: Vpc) -> list[Finding]:
    """A row for the VPC and one for each subnet; `needed` has addresses by zone."""
    if not vpc.exists:
        return [fail("existing VPC", existing.vpc_id, "there is none in this region", "write the id of one")]
    found: list[Finding] = []
    off = [
        name
        for name, on in (("enableDnsSupport", vpc.dns_support), ("enableDnsHostnames", vpc.dns_hostnames))
        if not on
    ]
    if off:
        todo = "; ".join(
            f"aws ec2 modify-vpc-attribute --vpc-id {existing.vpc_id} --{_dashed(name)}" for name in off
        )
        found.append(fail("existing VPC", existing.vpc_id, f"off: {', '.join(off)}", todo))
    else:
        found.append(ok("existing VPC", existing.vpc_id, "exists, DNS support and host names on"))
    for zone, subnet_id in existing.subnet_ids.items():
        found.append(_subnet_verdict(existing.vpc_id, zone, subnet_id, needed.get(zone, 0), vpc))
    return found


def _subnet_verdict(vpc_id: str, zone: str, subnet_id: str, needed: int, vpc: Vpc) -> Finding:
    check, asked = "existing subnet", f"{subnet_id} for {zone}"
    subnet = vpc.subnets.get(subnet_id)
    if subnet is None:
        return fail(check, asked, f"there is none in {vpc_id}", "write the id of a subnet of that VPC")
    free = int(subnet.get("AvailableIpAddressCount", 0))
    here = (subnet.get("AvailabilityZone"), subnet.get("AvailabilityZoneId"))
    way = vpc.ways_out.get(subnet_id, "none")
    answer = f"in {here[0]}, {free} free addresses, way out: {way}"
    faults: list[str] = []
    if zone not in here:
        faults.append(f"it lies in {here[0]}")
    if free < needed:
        faults.append(f"nodes may need {needed} addresses")
    if way == "internet gateway":
        faults.append("it is a public subnet, in which nodes without a public address reach nothing")
    missing = [name for name in NEEDED_ENDPOINTS if name not in vpc.endpoints]
    if way == "none" and missing:
        faults.append(f"neither NAT nor endpoints for {', '.join(missing)}")
    if faults:
        return fail(
            check, asked, f"{answer}: {'; '.join(faults)}", "use a private subnet of that zone with a way out"
        )
    if subnet.get("MapPublicIpOnLaunch"):
        return warn(
            check, asked, f"{answer}, gives public addresses", "nodes take none; use a private subnet"
        )
    if "s3" not in vpc.endpoints:
        return warn(
            check, asked, f"{answer}, no S3 endpoint", "checkpoints go through NAT and are billed by GB"
        )
    return ok(check, asked, answer)


def _needed_addresses(plans: Sequence[GroupPlan]) -> Counter[str]:
    needed: Counter[str] = Counter()
    for plan in plans:
        for zone in plan.zones if len(plan.zones) == 1 else ():
            needed[zone] += plan.max_nodes * max(layout.addresses_per_node for layout in plan.layouts)
    return needed


def _ask(account: Account, existing: ExistingNetwork) -> Vpc:
    ec2 = account.client("ec2")
    try:
        if not ec2.describe_vpcs(VpcIds=[existing.vpc_id])["Vpcs"]:
            return Vpc(False)
    except ClientError as error:
        if code_of(error) == "InvalidVpcID.NotFound":
            return Vpc(False)
        raise
    within = [{"Name": "vpc-id", "Values": [existing.vpc_id]}]
    subnets = {row["SubnetId"]: row for row in ec2.describe_subnets(Filters=within)["Subnets"]}
    tables = ec2.describe_route_tables(Filters=within)["RouteTables"]
    endpoints = ec2.describe_vpc_endpoints(Filters=within)["VpcEndpoints"]

    def attribute(name: str, key: str) -> bool:
        answer = ec2.describe_vpc_attribute(VpcId=existing.vpc_id, Attribute=name)
        return bool(answer[key]["Value"])

    return Vpc(
        True,
        attribute("enableDnsSupport", "EnableDnsSupport"),
        attribute("enableDnsHostnames", "EnableDnsHostnames"),
        subnets,
        {subnet: way_out(subnet, tables) for subnet in subnets},
        frozenset(row["ServiceName"].rpartition(".")[2] for row in endpoints),
    )


def way_out(subnet_id: str, tables: Sequence[Mapping[str, Any]]) -> str:
    """Where a subnet's default route leads: its own table's, else the main one's."""
    main: Mapping[str, Any] | None = None
    own: Mapping[str, Any] | None = None
    for table in tables:
        for association in table.get("Associations", []):
            main = table if association.get("Main") else main
            own = table if association.get("SubnetId") == subnet_id else own
    for route in (own or main or {}).get("Routes", []):
        if route.get("DestinationCidrBlock") != "0.0.0.0/0":
            continue
        if route.get("NatGatewayId"):
            return "NAT"
        if str(route.get("GatewayId", "")).startswith("igw-"):
            return "internet gateway"
        return next(
            (str(route[k]) for k in ("TransitGatewayId", "NetworkInterfaceId", "GatewayId") if route.get(k)),
            "none",
        )
    return "none"


def _dashed(name: str) -> str:
    return {"enableDnsSupport": "enable-dns-support", "enableDnsHostnames": "enable-dns-hostnames"}[name]
