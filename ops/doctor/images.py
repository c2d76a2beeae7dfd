"""The image of each group: what its parameter holds, and whether it is what the profile promises."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from components.catalog import ImageProfile, image_profile, instance_type
from components.settings import GpuGroupSettings
from components.settings.group_model import Image
from ops.account import Account, code_of, reason

from .finding import Check, Finding, fail, ok, warn

# A machine image that AWS published: its alias, or one of the accounts that publish deep-learning images.
AWS_OWNERS = {"amazon", "aws-marketplace", "898082745236"}
OLD_DAYS = 180


@dataclass(frozen=True)
class Resolved:
    """An image as EC2 describes it, and how it was found."""

    ami_id: str
    found_by: str
    image: Mapping[str, Any]


class NoImage(Exception):
    """One line: why there is no image."""


def resolve(account: Account, image: Image, pinned: bool = True) -> Resolved:
    """Raises NoImage, and what the calls raise. `pinned` False: what the parameter holds now."""
    ami_id, found_by = image.ami_id, "amiId"
    if ami_id is None and pinned and image.pinned is not None:
        ami_id, found_by = image.pinned.ami_id, f"pinned on {image.pinned.date}"
    if ami_id is None:
        found_by = str(image.ssm_parameter)
        try:
            held = account.client("ssm").get_parameter(Name=image.ssm_parameter)["Parameter"]["Value"]
        except ClientError as error:
            if code_of(error) == "ParameterNotFound":
                raise NoImage(f"there is no parameter {image.ssm_parameter} in {account.region}") from None
            raise
        ami_id = str(held).strip()
        if not ami_id.startswith("ami-"):
            raise NoImage(f"{image.ssm_parameter} holds '{ami_id[:40]}', which is no image id")
    try:
        described = account.client("ec2").describe_images(ImageIds=[ami_id], IncludeDeprecated=True)["Images"]
    except ClientError as error:
        if code_of(error).startswith("InvalidAMIID"):
            raise NoImage(f"{ami_id} ({found_by}): {reason(error)}") from None
        raise
    if not described:
        raise NoImage(f"{ami_id} ({found_by}) is not there for this account")
    return Resolved(ami_id, found_by, described[0])


def faults_of(image: Mapping[str, Any], profile: ImageProfile, types: Sequence[str]) -> list[str]:
    """Why nodes of the group would not boot from it as the profile promises; empty when they would."""
    faults: list[str] = []
    if image.get("State") != "available":
        faults.append(f"its state is {image.get('State')}")
    if image.get("Architecture") != profile.architecture:
        faults.append(f"it is {image.get('Architecture')}, {profile.name} is {profile.architecture}")
    faults += [
        f"it is {image.get('Architecture')}, {name} is {instance_type(name).architecture}"
        for name in types
        if instance_type(name).architecture != image.get("Architecture")
    ]
    if image.get("RootDeviceName") != profile.root_device_name:
        faults.append(
            f"its root device is {image.get('RootDeviceName')}, the profile's is {profile.root_device_name}: a node "
            "would get a second disk and a small root"
        )
    if image.get("RootDeviceType", "ebs") != "ebs":
        faults.append("its root is no EBS volume")
    if image.get("EnaSupport") is False:
        faults.append("it has no ENA driver")
    for name in types:
        able = instance_type(name).boot_modes
        mode = image.get("BootMode")
        if able and mode and mode != "uefi-preferred" and mode not in able:
            faults.append(f"it boots by {mode}, {name} by {' or '.join(able)}")
    return faults


def remarks_on(image: Mapping[str, Any], now: datetime.datetime) -> list[str]:
    """What is allowed and worth a word: age, deprecation, an owner nobody knows."""
    remarks: list[str] = []
    for key, words in (("DeprecationTime", "deprecated since"),):
        if (day := _day(image.get(key))) is not None and day <= now.date():
            remarks.append(f"{words} {day}")
    born = _day(image.get("CreationDate"))
    if born is not None and (age := (now.date() - born).days) > OLD_DAYS:
        remarks.append(f"{age} days old")
    return remarks


def verdict_of(group: GpuGroupSettings, found: Resolved, account_id: str, now: datetime.datetime) -> Finding:
    """One row about a group's image."""
    check, asked = f"image of {group.name}", found.found_by
    image, profile = found.image, image_profile(group.image.profile)
    owner = str(image.get("ImageOwnerAlias") or image.get("OwnerId") or "unknown")
    answer = f"{found.ami_id} {image.get('Name', 'without a name')}, of {owner}, {image.get('Architecture')}"
    faults = faults_of(image, profile, group.instance_types)
    if faults:
        return fail(
            check,
            asked,
            f"{answer}: {'; '.join(faults)}",
            "use another image or the profile that fits this one",
        )
    remarks = remarks_on(image, now)
    if owner not in AWS_OWNERS and image.get("OwnerId") not in AWS_OWNERS | {account_id}:
        remarks.append("not of AWS and not of this account")
    if remarks:
        return warn(check, asked, f"{answer}: {', '.join(remarks)}", "use a newer one, or one that you trust")
    return ok(check, asked, answer)


def checks(account: Account, groups: Sequence[GpuGroupSettings], now: datetime.datetime) -> list[Check]:
    return [
        Check(
            f"image of {group.name}",
            group.image.launched_id,
            "ssm:GetParameter and ec2:DescribeImages",
            lambda group=group: [_ask(account, group, now)],
        )
        for group in groups
    ]


def _ask(account: Account, group: GpuGroupSettings, now: datetime.datetime) -> Finding:
    try:
        return verdict_of(group, resolve(account, group.image), account.id, now)
    except NoImage as why:
        return fail(
            f"image of {group.name}",
            group.image.launched_id,
            str(why),
            "write an image or parameter that exists",
        )


def _day(text: Any) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(str(text)[:10])
    except ValueError:
        return None
