"""What a group's image may be, and which of its instance types the image's profile serves."""

from __future__ import annotations

from collections.abc import Iterator

from components.catalog import IMAGE_PROFILES, UnknownName, image_profile, images_for, why_unserved

from .faults import Fault, Path, essential
from .group_model import GpuGroupSettings
from .model import Settings
from .type_rules import known_types


def image_has_one_source(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """An id is fixed; a parameter follows what is published under it."""
    given = [
        name
        for name, value in (("amiId", group.image.ami_id), ("ssmParameter", group.image.ssm_parameter))
        if value is not None
    ]
    if len(given) != 1:
        wrong = "both amiId and ssmParameter" if given else "neither amiId nor ssmParameter"
        yield Fault((*at, "image"), wrong, "give exactly one of them")


@essential
def image_profile_is_known(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """The profile says what user data and the agent find on the image; docs/configuration.md lists them."""
    try:
        image_profile(group.image.profile)
    except UnknownName as unknown:
        yield Fault(
            (*at, "image", "profile"),
            f"unknown image profile '{group.image.profile}'",
            f"one of {', '.join(IMAGE_PROFILES)}",
            unknown.nearest,
        )


def image_serves_the_types(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """By architecture, NVIDIA driver, boot mode and release notes; no image of AWS has the driver that P3 needs."""
    profile = IMAGE_PROFILES.get(group.image.profile)
    if profile is None:
        return  # told by image_profile_is_known
    for _, type_ in known_types(group):
        if (why := profile.why_not(type_)) is None:
            continue
        able = images_for(type_)
        remedy = f"use {' or '.join(able)}"
        if not able:
            remedy = f"{why_unserved(type_)}: use another type, or suppress this for an image of your own"
        yield Fault((*at, "image", "profile"), f"{profile.name} does not serve {type_.name}: {why}", remedy)


RULES = (image_has_one_source, image_profile_is_known, image_serves_the_types)
