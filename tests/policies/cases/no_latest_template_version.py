from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

GROUP = "aws:autoscaling/group:Group"
TEMPLATE = R("aws:ec2/launchTemplate:LaunchTemplate", {"latestVersion": NOT_YET}, "template")


def group(version: Any, linked: bool = True) -> list[R]:
    specification = {"id": NOT_YET} if version is None else {"id": NOT_YET, "version": version}
    return [
        R(GROUP, {"launchTemplate": specification}, "group", {"launchTemplate": ["template"] * linked}),
        TEMPLATE,
    ]


def mixed(specification: Any, *overrides: Any) -> list[R]:
    policy = {"launchTemplate": {"launchTemplateSpecification": specification, "overrides": list(overrides)}}
    return [
        R(GROUP, {"mixedInstancesPolicy": policy}, "group", {"mixedInstancesPolicy": ["template"]}),
        TEMPLATE,
    ]


CASES = [
    Case("a number", Outcome.COMPLIANT, group("7")),
    Case("the output, at preview", Outcome.COMPLIANT, group(NOT_YET)),
    Case(
        "mixed, the output at preview",
        Outcome.COMPLIANT,
        mixed({"version": NOT_YET}, {"instanceType": "g6.xlarge"}),
    ),
    Case("$Latest", Outcome.VIOLATION, group("$Latest"), "$Latest"),
    Case("$Default", Outcome.VIOLATION, group("$Default"), "$Default"),
    Case("no version", Outcome.VIOLATION, group(None), "means $Default"),
    Case(
        "mixed with $Latest", Outcome.VIOLATION, mixed({"version": "$Latest"}), "launchTemplateSpecification"
    ),
    Case(
        "an override with a template of its own",
        Outcome.VIOLATION,
        mixed({"version": "3"}, {"launchTemplateSpecification": {"version": "$Latest"}}),
        "overrides[0]",
    ),
    Case("a template alone", Outcome.NOT_APPLICABLE, [TEMPLATE]),
    Case("a version out of nowhere", Outcome.UNKNOWN, group(NOT_YET, linked=False), "launchTemplate.version"),
    Case(
        "a specification not known yet",
        Outcome.UNKNOWN,
        [R(GROUP, {"launchTemplate": NOT_YET}, "group"), TEMPLATE],
        "launchTemplate.version",
    ),
]
