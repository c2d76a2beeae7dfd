from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:autoscaling/group:Group"
SUBNET = "aws:ec2/subnet:Subnet"
INSTANCE = "aws:ec2/instance:Instance"


def template(*public: Any) -> R:
    return R(
        TEMPLATE, {"networkInterfaces": [{"associatePublicIpAddress": one} for one in public]}, "template"
    )


def group(*, mapped: Any, linked: bool = True) -> list[R]:
    """A group in a subnet whose id is not known yet, as at a first preview."""
    links = {"vpcZoneIdentifiers": ["subnet"]} if linked else {}
    return [
        R(GROUP, {"vpcZoneIdentifiers": [NOT_YET]}, "group", links),
        R(SUBNET, {"mapPublicIpOnLaunch": mapped, "id": NOT_YET}, "subnet"),
    ]


CASES = [
    Case("interfaces say no", Outcome.COMPLIANT, [template("false", False)]),
    Case("interfaces say nothing, private subnet", Outcome.COMPLIANT, [template(None), *group(mapped=False)]),
    Case("ids not known, but linked to a private subnet", Outcome.COMPLIANT, group(mapped=False)),
    Case(
        "a public subnet that no group uses",
        Outcome.COMPLIANT,
        [*group(mapped=False), R(SUBNET, {"mapPublicIpOnLaunch": True}, "other")],
    ),
    Case("an interface says yes", Outcome.VIOLATION, [template(False, "true")], "networkInterfaces[1]"),
    Case(
        "an instance says yes",
        Outcome.VIOLATION,
        [R(INSTANCE, {"associatePublicIpAddress": True})],
        "internet",
    ),
    Case("a public subnet, linked at preview", Outcome.VIOLATION, group(mapped=True), "subnet subnet"),
    Case(
        "a public subnet, by its known id",
        Outcome.VIOLATION,
        [
            R(GROUP, {"vpcZoneIdentifiers": ["subnet-1"]}, "group"),
            R(SUBNET, {"mapPublicIpOnLaunch": True, "id": "subnet-1"}, "subnet"),
        ],
        "subnet subnet",
    ),
    Case("no nodes", Outcome.NOT_APPLICABLE, [R(SUBNET, {"mapPublicIpOnLaunch": True})]),
    Case("interface not known yet", Outcome.UNKNOWN, [template(NOT_YET)], "networkInterfaces[0]"),
    Case("subnet's setting not known yet", Outcome.UNKNOWN, group(mapped=NOT_YET), "mapPublicIpOnLaunch"),
    Case(
        "which subnet is not known yet",
        Outcome.UNKNOWN,
        group(mapped=True, linked=False),
        "vpcZoneIdentifiers",
    ),
    Case(
        "an unknown interface hides no public one",
        Outcome.VIOLATION,
        [template(NOT_YET, True)],
        "networkInterfaces[1]",
    ),
]
