"""EBS volumes whose figures do not go together.

Limits of the EBS user guide and of botocore's ec2 model (2026). Older texts name 16,384 GiB, 16,000 IOPS and
1,000 MiB/s for gp3; those were raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .._judge import UNKNOWN, leaves, read
from ._validator import Found, Inputs, Validator, known, number


@dataclass(frozen=True)
class Limits:
    """Of one volume type: GiB, IOPS (None: not to be set), and IOPS for each GiB."""

    gib: tuple[int, int]
    iops: tuple[int, int] | None = None
    iops_per_gib: int = 0


LIMITS = {
    "gp3": Limits((1, 65536), (3000, 80000), 500),
    "io1": Limits((4, 16384), (100, 64000), 50),
    "io2": Limits((4, 65536), (100, 256000), 1000),
    "gp2": Limits((1, 16384)),
    "st1": Limits((125, 16384)),
    "sc1": Limits((125, 16384)),
    "standard": Limits((1, 1024)),
}
GP3_THROUGHPUT = (125, 2000)  # MiB/s
GP3_THROUGHPUT_PER_IOPS = 0.25
GP3_BASELINE_IOPS = 3000
TEMPLATE, VOLUME, INSTANCE = (
    "aws:ec2/launchTemplate:LaunchTemplate",
    "aws:ebs/volume:Volume",
    "aws:ec2/instance:Instance",
)


def _volumes(inputs: Inputs) -> Iterator[tuple[str, str, Any]]:
    """Path, type and properties of every volume that the resource declares."""
    for path in ("blockDeviceMappings[*].ebs", "rootBlockDevice", "ebsBlockDevices[*]"):
        for at, volume in leaves(inputs, path):
            if volume is not None and volume is not UNKNOWN:
                kind = known(read(volume, "volumeType"))
                if kind is not None:
                    yield f"{at}.", str(kind), volume
    if (kind := known(read(inputs, "type"))) is not None:  # a volume of its own
        yield "", str(kind), inputs


def _size(volume: Any) -> tuple[str, float | None]:
    key = "size" if read(volume, "size") is not None else "volumeSize"
    return key, number(read(volume, key))


def volume_type_exists(inputs: Inputs) -> Iterator[Found]:
    """EBS has these types only."""
    for at, kind, _ in _volumes(inputs):
        if kind not in LIMITS:
            yield f"{at}volumeType: '{kind}' is none of {', '.join(LIMITS)}"


def volume_size_is_possible(inputs: Inputs) -> Iterator[Found]:
    """Smallest and largest size by volume type, GiB."""
    for at, kind, volume in _volumes(inputs):
        key, gib = _size(volume)
        if kind in LIMITS and gib is not None:
            low, high = LIMITS[kind].gib
            if not low <= gib <= high:
                yield f"{at}{key}: {gib:g} GiB is outside {low} to {high} of {kind}"


def volume_iops_are_possible(inputs: Inputs) -> Iterator[Found]:
    """IOPS by volume type, and not more for each GiB than the type gives (gp3: 500)."""
    for at, kind, volume in _volumes(inputs):
        iops, (_, gib) = number(read(volume, "iops")), _size(volume)
        if kind not in LIMITS or iops is None:
            continue
        limits = LIMITS[kind]
        if limits.iops is None:
            yield f"{at}iops: {kind} has no IOPS to set"
        elif not limits.iops[0] <= iops <= limits.iops[1]:
            yield f"{at}iops: {iops:g} is outside {limits.iops[0]} to {limits.iops[1]} of {kind}"
        elif gib is not None and iops > max(limits.iops[0], limits.iops_per_gib * gib):
            yield f"{at}iops: {iops:g} for {gib:g} GiB, at most {limits.iops_per_gib} for each GiB"


def volume_throughput_is_possible(inputs: Inputs) -> Iterator[Found]:
    """Throughput of gp3: 125 to 2,000 MiB/s and at most 0.25 MiB/s for each of its IOPS; other types have none."""
    for at, kind, volume in _volumes(inputs):
        throughput = number(read(volume, "throughput"))
        if throughput is None or kind not in LIMITS:
            continue
        iops = GP3_BASELINE_IOPS if read(volume, "iops") is None else number(read(volume, "iops"))
        low, high = GP3_THROUGHPUT
        if kind != "gp3":
            yield f"{at}throughput: {kind} has none to set"
        elif not low <= throughput <= high:
            yield f"{at}throughput: {throughput:g} MiB/s is outside {low} to {high}"
        elif iops is not None and throughput > iops * GP3_THROUGHPUT_PER_IOPS:
            yield f"{at}throughput: {throughput:g} MiB/s needs {throughput / GP3_THROUGHPUT_PER_IOPS:g} IOPS"


_VOLUMES = frozenset({TEMPLATE, VOLUME, INSTANCE})
VALIDATORS = (
    Validator(volume_type_exists, _VOLUMES, "gp3"),
    Validator(volume_size_is_possible, _VOLUMES, "a size of the type's range"),
    Validator(volume_iops_are_possible, _VOLUMES, "fewer IOPS, a larger volume, or io2"),
    Validator(volume_throughput_is_possible, _VOLUMES, "less throughput, or more IOPS"),
)
