"""What a pinned image may be beside, and how old it is."""

from __future__ import annotations

import datetime
from collections.abc import Iterator

from .faults import Fault, Path, info
from .group_model import GpuGroupSettings
from .model import Settings

OLD_DAYS = 90


def pinned_image_has_a_parameter(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """What is pinned is what an SSM parameter held on a day: it stands beside `ssmParameter` and nowhere else."""
    if group.image.pinned is not None and group.image.ssm_parameter is None:
        yield Fault(
            (*at, "image", "pinned"),
            "an image is pinned, but there is no ssmParameter that it came from",
            "remove it, or write ssmParameter instead of amiId",
        )


def pinned_day_is_a_day(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """The day of pinning is one of the calendar, and has come."""
    if group.image.pinned is None:
        return
    text, path = group.image.pinned.date, (*at, "image", "pinned", "date")
    remedy = "write the day of pinning, as `make pin-image` does"
    pinned = _day(text)
    if pinned is None:
        yield Fault(path, f"'{text}' is no day of the calendar", remedy)
    elif pinned > _today() + datetime.timedelta(days=1):  # a day more, for whoever is east of UTC
        yield Fault(path, f"{text} is still to come", remedy)


@info
def pinned_image_is_recent(group: GpuGroupSettings, at: Path, settings: Settings) -> Iterator[Fault]:
    """After 90 days an image lacks several of AWS's releases and their fixes (DLAMI release notes, 2026)."""
    pinned = _day(group.image.pinned.date) if group.image.pinned is not None else None
    if pinned is not None and (age_days := (_today() - pinned).days) > OLD_DAYS:
        yield Fault(
            (*at, "image", "pinned"),
            f"the image was pinned {age_days} days ago",
            f"`make pin-image STACK={settings.stack}` pins what the parameter holds now",
        )


def _day(text: str) -> datetime.date | None:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        return None


def _today() -> datetime.date:
    return datetime.datetime.now(datetime.timezone.utc).date()


RULES = (pinned_image_has_a_parameter, pinned_day_is_a_day, pinned_image_is_recent)
