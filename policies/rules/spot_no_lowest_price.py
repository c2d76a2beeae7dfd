"""Spot capacity is not bought where it is cheapest and therefore interrupted first."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import UNKNOWN, Finding, ResourceRule, leaves, require, unknown

DISTRIBUTION = "mixedInstancesPolicy.instancesDistribution"


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    on_demand = f"{DISTRIBUTION}.onDemandPercentageAboveBaseCapacity"
    for at, percent in leaves(resource.props, on_demand):
        if percent is UNKNOWN:
            yield unknown(resource, at)
        elif percent is not None and percent < 100:  # absent means 100: no spot at all
            yield from require(
                resource,
                f"{DISTRIBUTION}.spotAllocationStrategy",
                lambda value: value is not None and value != "lowest-price",
                "lowest-price (also the default) takes the pools that are interrupted most",
            )


RULE = ResourceRule(
    id="spot-no-lowest-price",
    why="The lowest-price strategy picks the spot pools with the least spare capacity: more interruptions.",
    fix='spot_allocation_strategy="price-capacity-optimized"',
    severity=Severity.MEDIUM,
    types=frozenset({"aws:autoscaling/group:Group"}),
    judge=judge,
)
