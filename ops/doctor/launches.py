"""A launch of every group and type, as its template will have it, that EC2 only judges (DryRun)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from botocore.exceptions import ClientError

from components.compute.plan import GroupPlan
from ops.account import Account, code_of, reason

from .finding import Check, Finding, Verdict, not_asked
from .subnets import Subnets

Market = Literal["on-demand", "spot", "capacity-block"]

# EC2's error codes (API reference, "Error codes", 2026), what they mean for a launch, and what to do.
JUDGED: dict[str, tuple[Verdict, str, str]] = {
    "DryRunOperation": ("ok", "EC2 would launch it", ""),
    "InsufficientInstanceCapacity": (
        "warn",
        "EC2 has no capacity for it here now",
        "add zones or instance types, or reserve capacity",
    ),
    "InsufficientReservedInstanceCapacity": (
        "fail",
        "the reservation has no instance left",
        "look at its count, its type and who else uses it",
    ),
    "ReservationCapacityExceeded": (
        "fail",
        "the reservation has no instance left",
        "look at its count, its type and who else uses it",
    ),
    "VcpuLimitExceeded": ("fail", "the account's vCPU quota is too small", "ask for more in Service Quotas"),
    "InstanceLimitExceeded": ("fail", "the account's quota is too small", "ask for more in Service Quotas"),
    "MaxSpotInstanceCountExceeded": (
        "fail",
        "the account's spot quota is too small",
        "ask for more in Service Quotas",
    ),
    "SpotMaxPriceTooLow": (
        "warn",
        "the price limit is below today's spot price",
        "raise purchase.maxPriceUsdPerHour, or leave it out",
    ),
    "InsufficientFreeAddressesInSubnet": (
        "fail",
        "the subnet has no free address",
        "use a subnet with more addresses",
    ),
    "Unsupported": ("fail", "EC2 does not offer this", "use another zone, type or way of buying"),
    "UnsupportedOperation": ("fail", "EC2 does not offer this", "use another zone, type or way of buying"),
    "OptInRequired": (
        "fail",
        "the account has not agreed to the image's terms",
        "subscribe to it in AWS Marketplace",
    ),
    "PendingVerification": (
        "fail",
        "AWS still verifies the account for this region",
        "wait, or ask AWS support",
    ),
    "AuthFailure.ServiceLinkedRoleCreationNotPermitted": (
        "fail",
        "spot needs a service-linked role that is not there",
        "aws iam create-service-linked-role --aws-service-name spot.amazonaws.com",
    ),
    "UnauthorizedOperation": (
        "could not ask",
        "you may not launch instances",
        "ask for the right ec2:RunInstances, or have somebody with it run this",
    ),
    "AccessDenied": ("could not ask", "you may not launch instances", "ask for the right ec2:RunInstances"),
    "RequestLimitExceeded": ("could not ask", "EC2 throttles the account", "try again in a minute"),
}
# Families of codes; the longest beginning counts.
BEGINNINGS: dict[str, tuple[Verdict, str, str]] = {
    "InvalidAMIID": ("fail", "the image is not there for this account", "see the row about the image"),
    "InvalidCapacityReservation": (
        "fail",
        "the reservation cannot be used so",
        "see the row about the reservation",
    ),
    "InvalidPlacementGroup": ("fail", "the placement group cannot be used so", "see the row about it"),
    "Invalid": ("fail", "EC2 refuses the template", "correct the configuration; if it is right, report this"),
    "Missing": ("fail", "EC2 refuses the template", "correct the configuration; if it is right, report this"),
    "Unsupported": ("fail", "EC2 does not offer this", "use another zone, type or way of buying"),
    "Insufficient": ("warn", "EC2 has no capacity for it here now", "add zones or instance types"),
}


@dataclass(frozen=True)
class Launch:
    """One launch to be tried: every template is tried with each of its types and ways of buying."""

    group: str
    instance_type: str
    zone: str
    market: Market

    @property
    def words(self) -> str:
        return f"{self.instance_type} in {self.zone}, {self.market}"


def launches_of(plan: GroupPlan) -> list[Launch]:
    """All types, in the group's first zone; the offerings row is about the others."""
    zone = plan.zones[0]
    return [
        Launch(plan.name, type_, zone, market) for type_ in plan.instance_types for market in markets_of(plan)
    ]


def markets_of(plan: GroupPlan) -> list[Market]:
    if plan.reservation is not None and plan.reservation.market_type == "capacity-block":
        return ["capacity-block"]
    mixed = plan.mixed_instances
    if mixed is None:
        return ["on-demand"]
    on_demand = mixed.on_demand_base_nodes > 0 or mixed.on_demand_percent_above_base > 0
    markets: list[Market] = ["on-demand"] if on_demand else []
    return [*markets, "spot"] if plan.buys_spot else markets


def request_of(plan: GroupPlan, launch: Launch, subnet_id: str) -> dict[str, Any]:
    """RunInstances with what the launch template says, apart from what does not exist yet: the role's profile, the
    security group (the subnet's default one stands for it), user data and the group's own placement group.
    """
    layout = next(one for one in plan.layouts if launch.instance_type in one.instance_types)
    request: dict[str, Any] = {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": plan.image_id,
        "InstanceType": launch.instance_type,
        "EbsOptimized": True,
        "MetadataOptions": {
            "HttpTokens": "required",
            "HttpEndpoint": "enabled",
            "HttpPutResponseHopLimit": 1,
        },
        "NetworkInterfaces": [
            {
                "NetworkCardIndex": interface.network_card_index,
                "DeviceIndex": interface.device_index,
                "InterfaceType": interface.interface_type,
                "SubnetId": subnet_id,
                "DeleteOnTermination": True,
                "AssociatePublicIpAddress": False,
            }
            for interface in layout.interfaces
        ],
        "BlockDeviceMappings": [
            {
                "DeviceName": plan.root_device_name,
                "Ebs": {"VolumeType": "gp3", "VolumeSize": plan.root_volume_gib, "Encrypted": True},
            }
        ],
    }
    if launch.market == "spot":
        limit = plan.mixed_instances.spot_max_price_usd_per_hour if plan.mixed_instances else None
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", **({"MaxPrice": limit} if limit else {})},
        }
    elif launch.market == "capacity-block":
        request["InstanceMarketOptions"] = {"MarketType": "capacity-block"}
    if plan.reservation is not None:
        request["CapacityReservationSpecification"] = {
            "CapacityReservationTarget": {"CapacityReservationId": plan.reservation.id}
        }
    if plan.placement_group_id is not None:
        request["Placement"] = {"GroupId": plan.placement_group_id}
    return request


def verdict_of(code: str, text: str) -> tuple[Verdict, str, str]:
    """Verdict, answer and what to do, for EC2's answer to a dry run. Unknown codes are told as EC2 says them."""
    known = JUDGED.get(code)
    if known is None:
        begins = max((b for b in BEGINNINGS if code.startswith(b)), key=len, default=None)
        known = BEGINNINGS[begins] if begins else ("warn", "EC2 would not launch it", "")
    verdict, answer, todo = known
    return verdict, answer if verdict == "ok" else f"{answer} ({code}{f': {text}' if text else ''})", todo


def checks(account: Account, plans: Sequence[GroupPlan], subnets: Subnets) -> Iterator[Check]:
    for plan in plans:
        for launch in launches_of(plan):
            yield Check(
                f"launch of {plan.name}",
                launch.words,
                "ec2:RunInstances",
                lambda plan=plan, launch=launch: [_try(account, plan, launch, subnets)],
            )


def _try(account: Account, plan: GroupPlan, launch: Launch, subnets: Subnets) -> Finding:
    check = f"launch of {plan.name}"
    subnet = subnets.in_zone(launch.zone)
    if subnet is None:
        return not_asked(
            check,
            launch.words,
            f"no subnet in {launch.zone} to launch into: neither the stack's nor a default one",
            "ask again when the stack's network exists",
        )
    try:
        account.client("ec2").run_instances(**request_of(plan, launch, subnet.id))
    except ClientError as error:
        text = reason(error).partition(": ")[2]
        verdict, answer, todo = verdict_of(code_of(error), text)
        return Finding(check, f"{launch.words}, {subnet.words}", answer, verdict, todo)
    return not_asked(check, launch.words, "the answer to a dry run was none of EC2's")
