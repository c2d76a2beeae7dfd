from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

GROUP = "aws:autoscaling/group:Group"


def mixed(**distribution: Any) -> list[R]:
    return [R(GROUP, {"mixedInstancesPolicy": {"instancesDistribution": distribution}})]


CASES = [
    Case(
        "capacity first",
        Outcome.COMPLIANT,
        mixed(onDemandPercentageAboveBaseCapacity=0, spotAllocationStrategy="price-capacity-optimized"),
    ),
    Case("all on demand", Outcome.COMPLIANT, mixed(onDemandPercentageAboveBaseCapacity=100)),
    Case("no distribution: no spot", Outcome.COMPLIANT, [R(GROUP, {"mixedInstancesPolicy": {}})]),
    Case("one type, on demand", Outcome.COMPLIANT, [R(GROUP, {"launchTemplate": {"version": "3"}})]),
    Case(
        "lowest price",
        Outcome.VIOLATION,
        mixed(onDemandPercentageAboveBaseCapacity=50, spotAllocationStrategy="lowest-price"),
        "spotAllocationStrategy",
    ),
    Case(
        "the default is lowest price",
        Outcome.VIOLATION,
        mixed(onDemandPercentageAboveBaseCapacity=0),
        "default",
    ),
    Case("a template", Outcome.NOT_APPLICABLE, [R("aws:ec2/launchTemplate:LaunchTemplate")]),
    Case(
        "strategy not known yet",
        Outcome.UNKNOWN,
        mixed(onDemandPercentageAboveBaseCapacity=0, spotAllocationStrategy=NOT_YET),
        "spotAllocationStrategy",
    ),
    Case(
        "share not known yet",
        Outcome.UNKNOWN,
        mixed(onDemandPercentageAboveBaseCapacity=NOT_YET),
        "onDemandPercentage",
    ),
]
