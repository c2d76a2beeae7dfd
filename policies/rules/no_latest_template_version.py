"""A group names a numbered version of its launch template."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pulumi_policy import PolicyResource, Severity

from ._join import of_type
from ._judge import UNKNOWN, Finding, StackRule, leaves, read, unknown, violation

GROUP = "aws:autoscaling/group:Group"
INSTANCE = "aws:ec2/instance:Instance"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
MIXED = "mixedInstancesPolicy.launchTemplate"
SPECIFICATIONS = ("launchTemplate", f"{MIXED}.launchTemplateSpecification")
# An override may name a template of its own; without one it takes the group's.
OVERRIDES = f"{MIXED}.overrides[*].launchTemplateSpecification"


def judge(stack: list[PolicyResource]) -> Iterator[Finding]:
    for resource in of_type(stack, GROUP, INSTANCE):
        for path in (*SPECIFICATIONS, OVERRIDES):
            for at, specification in leaves(resource.props, path):
                if specification is not None:
                    yield from _version(resource, at, specification)


def _version(resource: PolicyResource, at: str, specification: Any) -> Iterator[Finding]:
    top_level = at.split(".")[0]
    version = UNKNOWN if specification is UNKNOWN else read(specification, "version")
    if version is UNKNOWN:
        # `latest_version` is unknown at preview and a number afterwards; from elsewhere it may be anything.
        if not of_type(resource.property_dependencies.get(top_level, []), TEMPLATE):
            yield unknown(resource, f"{at}.version")
    elif not str(version or "").isdigit():
        shown = version or "none, which means $Default"
        yield violation(resource, f"{at}.version: {shown}; a new template version would not roll out")


RULE = StackRule(
    id="no-latest-template-version",
    why="With $Latest or $Default the group's own inputs never change, so an instance refresh never starts.",
    fix="version=launch_template.latest_version, the output",
    severity=Severity.MEDIUM,
    types=frozenset({GROUP, INSTANCE}),
    judge=judge,
)
