from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

GROUP = "aws:autoscaling/group:Group"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CEILING = {"maxUsdPerHour": {"prod": 500, "*": 10}}


def single(nodes: Any, type_: Any = "p5.48xlarge", stack: str = "prod", **props: Any) -> list[R]:
    """A group whose type is the template's, as a program links them before any id is known."""
    group = {"maxSize": nodes, "region": "us-east-1", "launchTemplate": {"id": NOT_YET}, **props}
    return [
        R(TEMPLATE, {"instanceType": type_}, "template", stack=stack),
        R(GROUP, group, "h100", {"launchTemplate": ["template"]}, stack=stack),
    ]


def mixed(*types: Any, nodes: int = 4, name: str = "mixed") -> R:
    policy = {"launchTemplate": {"overrides": [{"instanceType": type_} for type_ in types]}}
    return R(
        GROUP, {"maxSize": nodes, "region": "us-east-1", "mixedInstancesPolicy": policy}, name, stack="prod"
    )


def excepted(resource: str, expires: str = "2999-12-31") -> dict[str, Any]:
    entry = {"resource": resource, "reason": "TICKET-7: agreed until then", "expires": expires}
    return {**CEILING, "exceptions": [entry]}


CASES = [
    Case("nothing is configured", Outcome.COMPLIANT, single(1000)),
    Case("below", Outcome.COMPLIANT, single(9), config=CEILING),
    Case(
        "above",
        Outcome.VIOLATION,
        single(10),
        "the groups of prod cost 550.40 USD an hour on demand, above the ceiling of 500: h100 550.40 "
        "(10 x p5.48xlarge at 55.04)",
        CEILING,
    ),
    Case("another stack's ceiling", Outcome.VIOLATION, single(1, stack="dev"), "ceiling of 10", CEILING),
    Case(
        "no ceiling for this one",
        Outcome.COMPLIANT,
        single(1, stack="dev"),
        config={"maxUsdPerHour": {"prod": 1}},
    ),
    Case(
        "above only together",
        Outcome.VIOLATION,
        [*single(8), mixed("g6e.48xlarge", nodes=2)],
        "500.58 USD an hour",
        CEILING,
    ),
    Case(
        "of several types the dearest counts, of spot nodes too",
        Outcome.VIOLATION,
        [mixed("g6.xlarge", "p5.48xlarge", "g6.12xlarge", nodes=10)],
        "10 x p5.48xlarge",
        CEILING,
    ),
    Case("a group that is excepted is not counted", Outcome.COMPLIANT, single(10), config=excepted("h100")),
    Case(
        "an exception of one group leaves the others",
        Outcome.VIOLATION,
        [*single(10), mixed("p5.48xlarge", nodes=10)],
        "mixed 550.40",
        excepted("h100"),
    ),
    Case("an old exception", Outcome.VIOLATION, single(10), "it expired on", excepted("h100", "2020-01-01")),
    Case("a size not known yet", Outcome.UNKNOWN, single(NOT_YET), "maxSize", CEILING),
    Case("a type not known yet", Outcome.UNKNOWN, single(1, NOT_YET), "instanceType", CEILING),
    Case("a region that nobody tells", Outcome.UNKNOWN, single(1, region=None), "region", CEILING),
    Case(
        "a price that the catalog does not have",
        Outcome.UNKNOWN,
        single(1, "z9.metal"),
        "no price of z9.metal in us-east-1 is in the catalog",
        CEILING,
    ),
    Case(
        "an unknown price hides no violation",
        Outcome.VIOLATION,
        [*single(10), mixed("z9.metal")],
        "550.40 USD",
        CEILING,
    ),
    Case("a bucket", Outcome.NOT_APPLICABLE, [R("aws:s3/bucket:Bucket")], config=CEILING),
]
