"""What all groups of a stack may cost an hour at their largest stays below what its owner set.

Counted is every node up to `maxSize` at the on-demand list price of the dearest of its types, from the catalog: spot
nodes too, since a spot price may rise that far. The ceiling is set in the pack's configuration; without one the rule
finds nothing. A group that an exception names is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pulumi_policy import PolicyResource, Severity

from ._exceptions import Exceptions
from ._join import of_type, points_to
from ._judge import UNKNOWN, Finding, StackRule, leaves, read, unknown, violation
from .refusals._catalog import on_demand_price

GROUP = "aws:autoscaling/group:Group"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
OVERRIDES = "mixedInstancesPolicy.launchTemplate.overrides[*].instanceType"
LINKS = (  # where a group names its launch template
    "launchTemplate.id",
    "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification.launchTemplateId",
)


@dataclass(frozen=True)
class _Cost:
    group: PolicyResource
    nodes: int
    type_: str
    usd_per_hour: float

    @property
    def usd(self) -> float:
        return self.nodes * self.usd_per_hour

    def __str__(self) -> str:
        return f"{self.group.name} {self.usd:.2f} ({self.nodes} x {self.type_} at {self.usd_per_hour:g})"


def judge(resources: list[PolicyResource], config: Mapping[str, Any]) -> Iterator[Finding]:
    exceptions = Exceptions(config)
    groups = [group for group in of_type(resources, GROUP) if not exceptions.covers(group.name)]
    ceilings = config.get("maxUsdPerHour") or {}
    stack = groups[0].urn.split("::")[0].rpartition(":")[2] if groups else ""
    ceiling = ceilings.get(stack, ceilings.get("*"))
    if ceiling is None:
        return
    costs: list[_Cost] = []
    for group in groups:
        cost = _cost(group, of_type(resources, TEMPLATE))
        if isinstance(cost, _Cost):
            costs.append(cost)
        else:
            yield cost
    costs.sort(key=lambda cost: cost.usd, reverse=True)
    together = sum(cost.usd for cost in costs)
    if costs and together > ceiling:
        yield violation(
            costs[0].group,
            f"maxSize: at their largest the groups of {stack} cost {together:.2f} USD an hour on demand, above the "
            f"ceiling of {ceiling:g}: {', '.join(map(str, costs))}",
        )


def _cost(group: PolicyResource, templates: list[PolicyResource]) -> _Cost | Finding:
    nodes, region = read(group.props, "maxSize"), _region(group)
    if nodes is UNKNOWN or nodes is None:
        return unknown(group, "maxSize")
    types = {value for _, value in leaves(group.props, OVERRIDES) if value is not None} or {
        read(template.props, "instanceType")
        for template in templates
        if any(points_to(group, link, template, ("id", "name")) for link in LINKS)
    }
    if not types or any(type_ is UNKNOWN or type_ is None for type_ in types):
        return unknown(group, "instanceType")
    if region is None:
        return unknown(group, "region")
    prices = {type_: on_demand_price(type_, region) for type_ in sorted(types)}
    unpriced = [type_ for type_, price in prices.items() if price is None]
    if unpriced:
        return unknown(
            group, f"no price of {', '.join(unpriced)} in {region} is in the catalog, so it is not counted"
        )
    usd, type_ = max((price.high_usd, type_) for type_, price in prices.items() if price is not None)
    return _Cost(group, int(nodes), type_, usd)


def _region(group: PolicyResource) -> str | None:
    """The group's own, which the provider fills, or the provider's."""
    places = [group.props, *([group.provider.props] if group.provider else [])]
    found = [read(place, "region") for place in places]
    return next((region for region in found if isinstance(region, str)), None)


RULE = StackRule(
    id="cost-ceiling",
    why="One typed digit in maxNodes, or one group more, can cost more in a night than the project in a year.",
    fix="lower maxNodes, or raise maxUsdPerHour in the pack's configuration with whoever pays",
    severity=Severity.HIGH,
    types=frozenset({GROUP}),
    judge=judge,
    options={
        "maxUsdPerHour": {
            "type": "object",
            "description": "USD an hour by stack; * is for every other one. Absent: no ceiling.",
            "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
        }
    },
)
