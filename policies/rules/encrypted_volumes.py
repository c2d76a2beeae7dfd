"""Every volume that the program declares is encrypted by the program, not by an account's setting."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import UNKNOWN, Finding, ResourceRule, is_true, leaves, read, require, unknown, violation

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
VOLUME = "aws:ebs/volume:Volume"
ENCRYPTED = "the volume would be readable by whoever gets hold of a snapshot of it"


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    if resource.resource_type == VOLUME:
        yield from require(resource, "encrypted", is_true, ENCRYPTED)
    elif resource.resource_type == INSTANCE:
        yield from require(resource, "rootBlockDevice.encrypted", is_true, ENCRYPTED)
        yield from require(resource, "ebsBlockDevices[*].encrypted", is_true, ENCRYPTED)
    else:
        yield from _template(resource)


def _template(resource: ResourceValidationArgs) -> Iterator[Finding]:
    mappings = list(leaves(resource.props, "blockDeviceMappings[*]"))
    if not mappings:
        yield violation(
            resource, "blockDeviceMappings: the root device is not declared, so the image decides"
        )
    for at, mapping in mappings:
        if mapping is UNKNOWN:
            yield unknown(resource, at)
        elif read(mapping, "ebs") is not None:  # instance store and suppressed devices have none
            yield from require(resource, f"{at}.ebs.encrypted", is_true, ENCRYPTED)


RULE = ResourceRule(
    id="encrypted-volumes",
    why="An unencrypted volume leaks data sets and models through its snapshots.",
    fix="encrypted=true on each EBS volume, the image's root device included",
    severity=Severity.HIGH,
    types=frozenset({TEMPLATE, INSTANCE, VOLUME}),
    judge=judge,
)
