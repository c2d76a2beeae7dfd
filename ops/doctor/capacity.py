"""Whether the account may have the nodes: quotas, and zones that offer the types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from components.compute.plan import GroupPlan
from components.settings import Settings
from components.settings.quota_rules import QuotaNeed, quota_needs
from ops.account import Account, code_of

from .finding import Check, Finding, fail, not_asked, ok, warn

CONSOLE = "Service Quotas of the region in the AWS console"


def quota_verdict(need: QuotaNeed, value: float | None) -> Finding:
    """Compares a quota with what the stack takes at `maxNodes`; `value` None: the service knows no such quota."""
    quota = need.quota
    check = f"quota {quota.key}"
    asked = f"{quota.name} ({quota.code or 'no code known'})"
    needed = f"the stack takes {need.needed} {quota.unit} at maxNodes"
    if value is None:
        return not_asked(
            check, asked, f"Service Quotas has no such quota here; {needed}", f"look in {CONSOLE}"
        )
    answer = f"{value:g} {quota.unit}; {needed}"
    if value >= need.needed:
        return ok(check, asked, answer)
    if not quota.adjustable:
        return fail(check, asked, answer, "AWS raises it for nobody: make the stack smaller")
    return fail(
        check,
        asked,
        answer,
        f"aws service-quotas request-service-quota-increase --service-code {quota.service} --quota-code {quota.code} "
        f"--desired-value {need.needed}",
    )


def quota_checks(account: Account, settings: Settings) -> list[Check]:
    return [
        Check(
            f"quota {need.quota.key}",
            f"{need.quota.name} ({need.quota.code or 'no code known'})",
            "servicequotas:GetServiceQuota",
            lambda need=need: [_quota(account, need)],
        )
        for need in quota_needs(settings)
        # A limit without a code is one that nobody can ask for; of the fixed ones preview has judged already.
        if need.quota.code is not None or need.is_of_gpus
    ]


def _quota(account: Account, need: QuotaNeed) -> Finding:
    if need.code is None:
        return quota_verdict(need, None)
    client, where = (
        account.client("service-quotas"),
        {"ServiceCode": need.quota.service, "QuotaCode": need.code},
    )
    for ask in (client.get_service_quota, client.get_aws_default_service_quota):
        try:
            return quota_verdict(need, float(ask(**where)["Quota"]["Value"]))
        except ClientError as error:
            if code_of(error) != "NoSuchResourceException":
                raise
    return quota_verdict(need, None)


def offering_verdict(plan: GroupPlan, offered: Mapping[str, set[str]]) -> list[Finding]:
    """Per type: in which of the group's zones EC2 offers it. `offered` has the zones, by name and by id, of a type."""
    found: list[Finding] = []
    for type_ in plan.instance_types:
        check, asked = f"offering of {plan.name}", f"{type_} in {', '.join(plan.zones)}"
        here = [zone for zone in plan.zones if zone in offered.get(type_, set())]
        others = sorted(offered.get(type_, set()) - set(here))
        where = f"offered in {', '.join(others)}" if others else "offered in no zone of the region"
        if len(here) == len(plan.zones):
            found.append(ok(check, asked, "offered"))
        elif here:
            missing = [zone for zone in plan.zones if zone not in here]
            found.append(
                warn(check, asked, f"not in {', '.join(missing)}", "EC2 leaves those zones aside for it")
            )
        elif len(plan.instance_types) > 1:
            found.append(warn(check, asked, f"not offered; {where}", "the group's other types must do"))
        else:
            found.append(fail(check, asked, f"not offered; {where}", "use a zone that offers it"))
    return found


def offering_check(account: Account, plans: Sequence[GroupPlan]) -> Check:
    types = sorted({type_ for plan in plans for type_ in plan.instance_types})
    return Check(
        "offerings",
        f"{len(types)} types by zone",
        "ec2:DescribeInstanceTypeOfferings",
        lambda: _offerings(account, plans, types),
    )


def _offerings(account: Account, plans: Sequence[GroupPlan], types: Sequence[str]) -> list[Finding]:
    ec2, offered = account.client("ec2"), dict[str, set[str]]()
    kinds = {
        "availability-zone-id" if _is_zone_id(z) else "availability-zone" for p in plans for z in p.zones
    }
    for kind in sorted(kinds):
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType=kind, Filters=[{"Name": "instance-type", "Values": list(types)}]
        )
        for row in (row for page in pages for row in page["InstanceTypeOfferings"]):
            offered.setdefault(row["InstanceType"], set()).add(row["Location"])
    return [finding for plan in plans for finding in offering_verdict(plan, offered)]


def zone_check(account: Account, settings: Settings) -> Check:
    wanted = settings.network.availability_zones
    return Check(
        "zones",
        ", ".join(wanted),
        "ec2:DescribeAvailabilityZones",
        lambda: [
            zone_verdict(wanted, account.client("ec2").describe_availability_zones()["AvailabilityZones"])
        ],
    )


def zone_verdict(wanted: Sequence[str], zones: Sequence[Mapping[str, Any]]) -> Finding:
    """Zones are named differently in each account: a name of another account may not be there."""
    known = {
        zone[key] for zone in zones for key in ("ZoneName", "ZoneId") if zone.get("State") == "available"
    }
    missing = [zone for zone in wanted if zone not in known]
    if missing:
        names = ", ".join(sorted(str(zone["ZoneName"]) for zone in zones))
        return fail(
            "zones", ", ".join(wanted), f"no zone of this account: {', '.join(missing)}", f"one of {names}"
        )
    ids = {zone["ZoneName"]: zone["ZoneId"] for zone in zones}
    return ok("zones", ", ".join(wanted), ", ".join(f"{z} is {ids[z]}" if z in ids else z for z in wanted))


def _is_zone_id(zone: str) -> bool:
    return not zone[:2].isalpha() or zone[2:3] != "-"  # use1-az1, not us-east-1a
