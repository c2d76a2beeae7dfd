"""In production a node's image is an id that somebody chose, not whatever a parameter holds at its launch.

`pulumi preview` only advises: a stack file names a parameter until `make pin-image` has written the id.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import UNKNOWN, Finding, ResourceRule, leaves, unknown, violation

PATHS = {
    "aws:ec2/launchTemplate:LaunchTemplate": "imageId",
    "aws:ec2/launchConfiguration:LaunchConfiguration": "imageId",
    "aws:ec2/instance:Instance": "ami",
}
DEFAULT_STACKS = ("prod",)
IMAGE_ID = re.compile(r"ami-[0-9a-f]{8,17}")


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    stacks = resource.get_config().get("stacks", DEFAULT_STACKS)
    if _stack_of(resource.urn) not in stacks:
        return
    for at, image in leaves(resource.props, PATHS[resource.resource_type]):
        if image is UNKNOWN:
            yield unknown(resource, at)
        elif not IMAGE_ID.fullmatch(str(image)):
            yield violation(
                resource, f"{at}: {image or 'no image'} is no image id, so nodes of one group may differ"
            )


def _stack_of(urn: str) -> str:
    """urn:pulumi:<stack>::<project>::..."""
    return urn.split("::")[0].rpartition(":")[2]


RULE = ResourceRule(
    id="images-pinned",
    why="A parameter that changes overnight gives new nodes another image, untried, in the middle of a run.",
    fix="make pin-image STACK=<stack>, which writes the id, its name and the date into the stack file",
    severity=Severity.MEDIUM,
    types=frozenset(PATHS),
    judge=judge,
    advises_at_preview=True,
    options={"stacks": {"type": "array", "items": {"type": "string"}, "default": list(DEFAULT_STACKS)}},
)
