"""Auto Scaling groups, their schedules and hooks, as the Auto Scaling API refuses them (botocore's model, 2026)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .._judge import UNKNOWN, leaves, read
from ._validator import Found, Inputs, NotKnown, Validator, known, number

GROUP, SCHEDULE, HOOK = (
    "aws:autoscaling/group:Group",
    "aws:autoscaling/schedule:Schedule",
    "aws:autoscaling/lifecycleHook:LifecycleHook",
)
DISTRIBUTION = "mixedInstancesPolicy.instancesDistribution"
OVERRIDES = "mixedInstancesPolicy.launchTemplate.overrides"
SPOT_STRATEGIES = (
    "price-capacity-optimized",
    "capacity-optimized",
    "capacity-optimized-prioritized",
    "lowest-price",
)
ON_DEMAND_STRATEGIES = ("prioritized", "lowest-price")
MAX_OVERRIDES = 40
# Minute, hour, day, month, weekday: the least and the largest number of each field, and its names.
CRON_FIELDS = ((0, 59, ""), (0, 23, ""), (1, 31, ""), (1, 12, "JAN"), (0, 7, "SUN"))
NAMES = {
    "JAN": ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"],
    "SUN": ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"],
}
LEAST_PRICE = 0.001  # USD an hour
KEEP = -1  # how the provider says that a schedule leaves a size as it is


def spot_strategy_exists(inputs: Inputs) -> Iterator[Found]:
    """An unknown `spotAllocationStrategy` is refused when the group is made, not before."""
    for at, strategy in leaves(inputs, f"{DISTRIBUTION}.spotAllocationStrategy"):
        if strategy is UNKNOWN:
            yield NotKnown(at)
        elif strategy is not None and strategy not in SPOT_STRATEGIES:
            yield f"{at}: '{strategy}' is none of {', '.join(SPOT_STRATEGIES)}"


def on_demand_strategy_exists(inputs: Inputs) -> Iterator[Found]:
    """`prioritized` or `lowest-price`."""
    for at, strategy in leaves(inputs, f"{DISTRIBUTION}.onDemandAllocationStrategy"):
        if known(strategy) is not None and strategy not in ON_DEMAND_STRATEGIES:
            yield f"{at}: '{strategy}' is none of {', '.join(ON_DEMAND_STRATEGIES)}"


def spot_pools_belong_to_lowest_price(inputs: Inputs) -> Iterator[Found]:
    """`spotInstancePools` with another strategy than lowest-price (terraform#25038)."""
    [(_, strategy)] = leaves(inputs, f"{DISTRIBUTION}.spotAllocationStrategy")
    for at, pools in leaves(inputs, f"{DISTRIBUTION}.spotInstancePools"):
        if number(pools) and known(strategy) is not None and strategy != "lowest-price":
            yield f"{at}: beside strategy {strategy}"


def group_sizes_are_ordered(inputs: Inputs) -> Iterator[Found]:
    """`minSize` is not above `maxSize`, and `desiredCapacity` lies between them."""
    low, high = number(read(inputs, "minSize")), number(read(inputs, "maxSize"))
    desired = number(read(inputs, "desiredCapacity"))
    if low is not None and high is not None and low > high:
        yield f"minSize: {low:g} is above maxSize {high:g}"
    elif desired is not None and low is not None and desired < low:
        yield f"desiredCapacity: {desired:g} is below minSize {low:g}"
    elif desired is not None and high is not None and desired > high:
        yield f"desiredCapacity: {desired:g} is above maxSize {high:g}"


def overrides_are_few_and_different(inputs: Inputs) -> Iterator[Found]:
    """At most 40 overrides, each instance type once."""
    types = [(at, value) for at, value in leaves(inputs, f"{OVERRIDES}[*].instanceType")]
    if len(types) > MAX_OVERRIDES:
        yield f"{OVERRIDES}: {len(types)} of them, at most {MAX_OVERRIDES}"
    seen: set[str] = set()
    for at, name in types:
        if known(name) is not None:
            if name in seen:
                yield f"{at}: '{name}' is there twice"
            seen.add(name)


def base_and_share_are_numbers_of_nodes(inputs: Inputs) -> Iterator[Found]:
    """The on-demand base is not negative, the share above it from 0 to 100 (terraform-provider-aws#9841)."""
    for at, base in leaves(inputs, f"{DISTRIBUTION}.onDemandBaseCapacity"):
        if (value := number(base)) is not None and value < 0:
            yield f"{at}: {value:g} is negative"
    for at, share in leaves(inputs, f"{DISTRIBUTION}.onDemandPercentageAboveBaseCapacity"):
        if (value := number(share)) is not None and not 0 <= value <= 100:
            yield f"{at}: {value:g} is outside 0 to 100"


def spot_price_is_a_price(inputs: Inputs) -> Iterator[Found]:
    """Text of a number of at least 0.001 USD an hour."""
    for path in (f"{DISTRIBUTION}.spotMaxPrice", "instanceMarketOptions.spotOptions.maxPrice"):
        for at, price in leaves(inputs, path):
            if known(price) and (number(price) or 0) < LEAST_PRICE:
                yield f"{at}: '{price}' is no price from 0.001 USD an hour"


def recurrence_is_cron_text(inputs: Inputs) -> Iterator[Found]:
    """Five fields: minute, hour, day, month, weekday."""
    for at, text in leaves(inputs, "recurrence"):
        if text is UNKNOWN:
            yield NotKnown(at)
        elif text is not None:
            fields = str(text).split()
            if len(fields) != len(CRON_FIELDS):
                yield f"{at}: '{text}' has {len(fields)} fields, cron has {len(CRON_FIELDS)}"
                continue
            for field, (low, high, names) in zip(fields, CRON_FIELDS, strict=True):
                if not _is_cron_field(field, low, high, NAMES.get(names, [])):
                    yield f"{at}: '{field}' in '{text}' is no cron field from {low} to {high}"


def _is_cron_field(text: str, low: int, high: int, names: list[str]) -> bool:
    for part in text.split(","):
        match = re.fullmatch(r"(\*|[0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?(?:/(\d+))?", part)
        if match is None or (match[1] == "*" and match[2] is not None):
            return False
        ends = [_cron_number(end, low, names) for end in (match[1], match[2]) if end not in (None, "*")]
        if any(end is None or not low <= end <= high for end in ends) or match[3] == "0":
            return False
    return True


def _cron_number(text: str, low: int, names: list[str]) -> int | None:
    if text.isdigit():
        return int(text)
    return low + names.index(text.upper()) if text.upper() in names else None


def schedule_changes_something(inputs: Inputs) -> Iterator[Found]:
    """At least one of the sizes is given, and they are ordered."""
    sizes = {key: number(read(inputs, key)) for key in ("minSize", "desiredCapacity", "maxSize")}
    if any(read(inputs, key) is UNKNOWN for key in sizes):
        return
    given = {key: size for key, size in sizes.items() if size is not None and size != KEEP}
    if not given:
        yield "minSize: neither it nor maxSize nor desiredCapacity is given"
    ordered = list(given.items())
    for (lower, low), (upper, high) in pairwise(ordered):
        if low > high:
            yield f"{lower}: {low:g} is above {upper} {high:g}"


def schedule_has_a_time(inputs: Inputs) -> Iterator[Found]:
    """A start or a recurrence; times like 2027-01-11T11:30:00Z, in UTC, the end after the start."""
    if read(inputs, "recurrence") is None and read(inputs, "startTime") is None:
        yield "startTime: neither it nor a recurrence is given"
    times: list[datetime] = []
    for key in ("startTime", "endTime"):
        text = known(read(inputs, key))
        if text is None:
            continue
        try:
            times.append(datetime.strptime(str(text), "%Y-%m-%dT%H:%M:%SZ"))
        except ValueError:
            yield f"{key}: '{text}' is no time like 2027-01-11T11:30:00Z"
    if len(times) == 2 and times[1] <= times[0]:
        yield f"endTime: not after startTime {times[0]:%Y-%m-%dT%H:%M:%SZ}"


def time_zone_exists(inputs: Inputs) -> Iterator[Found]:
    """A canonical name of the IANA time zone database."""
    for at, name in leaves(inputs, "timeZone"):
        if known(name) is None:
            continue
        try:
            ZoneInfo(str(name))
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield f"{at}: '{name}' is no IANA time zone"


def hook_lasts_possible_seconds(inputs: Inputs) -> Iterator[Found]:
    """Heartbeats last from 30 to 7,200 seconds."""
    for path in ("heartbeatTimeout", "initialLifecycleHooks[*].heartbeatTimeout"):
        for at, seconds in leaves(inputs, path):
            if (value := number(seconds)) is not None and not 30 <= value <= 7200:
                yield f"{at}: {value:g} s is outside 30 to 7200"


_GROUP, _SCHEDULE = frozenset({GROUP}), frozenset({SCHEDULE})
VALIDATORS = (
    Validator(spot_strategy_exists, _GROUP, "price-capacity-optimized"),
    Validator(on_demand_strategy_exists, _GROUP, "prioritized"),
    Validator(spot_pools_belong_to_lowest_price, _GROUP, "no spot_instance_pools"),
    Validator(group_sizes_are_ordered, _GROUP, "min_size <= desired_capacity <= max_size"),
    Validator(overrides_are_few_and_different, _GROUP, "each instance type once"),
    Validator(base_and_share_are_numbers_of_nodes, _GROUP, "a base from 0, a share from 0 to 100"),
    Validator(
        spot_price_is_a_price,
        frozenset({GROUP, "aws:ec2/launchTemplate:LaunchTemplate"}),
        "a price such as '18.0', or none: the on-demand price is then the limit",
    ),
    Validator(recurrence_is_cron_text, _SCHEDULE, "five fields such as 0 20 * * 1-5"),
    Validator(schedule_changes_something, _SCHEDULE, "a size that changes, the others -1"),
    Validator(schedule_has_a_time, _SCHEDULE, "a recurrence, or a start_time in UTC"),
    Validator(time_zone_exists, _SCHEDULE, "a name such as Europe/Berlin"),
    Validator(hook_lasts_possible_seconds, frozenset({GROUP, HOOK}), "30 to 7200 seconds"),
)
