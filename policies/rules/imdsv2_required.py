"""IMDSv2 only, and answers that do not travel further than one container."""

from __future__ import annotations

from collections.abc import Iterator

from pulumi_policy import ResourceValidationArgs, Severity

from ._judge import Finding, ResourceRule, require

MOST_HOPS = 2  # the host and one container network


def judge(resource: ResourceValidationArgs) -> Iterator[Finding]:
    yield from require(
        resource,
        "metadataOptions.httpTokens",
        lambda value: value == "required",
        "metadata must be read with a session token, else one forged request gets the node's credentials",
    )
    yield from require(
        resource,
        "metadataOptions.httpPutResponseHopLimit",
        lambda value: value is None or value in range(1, MOST_HOPS + 1),
        f"session tokens may travel at most {MOST_HOPS} hops",
    )


RULE = ResourceRule(
    id="imdsv2-required",
    why="Without IMDSv2 a forged request from inside a node reads the node's credentials.",
    fix='metadata_options with http_tokens="required" and http_put_response_hop_limit of 1 or 2',
    severity=Severity.HIGH,
    types=frozenset(
        {
            "aws:ec2/launchTemplate:LaunchTemplate",
            "aws:ec2/launchConfiguration:LaunchConfiguration",
            "aws:ec2/instance:Instance",
        }
    ),
    judge=judge,
)
