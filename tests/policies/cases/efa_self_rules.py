from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
SG = R(GROUP, {"id": NOT_YET}, "nodes")
OTHER = R(GROUP, {"id": NOT_YET}, "other")


def template(kind: Any = "efa-only", groups: tuple[str, ...] = ("nodes",)) -> R:
    nics = [
        {"interfaceType": "interface"},
        {"interfaceType": kind, "securityGroups": [NOT_YET] * len(groups)},
    ]
    return R(TEMPLATE, {"networkInterfaces": nics}, "template", {"networkInterfaces": list(groups)})


def rule(
    type_: str, of: str = "nodes", peer: str = "nodes", protocol: Any = "-1", name: str | None = None
) -> R:
    """A rule whose group ids are not known yet, as at a first preview."""
    props = {"securityGroupId": NOT_YET, "referencedSecurityGroupId": NOT_YET, "ipProtocol": protocol}
    links = {"securityGroupId": [of], "referencedSecurityGroupId": [peer]}
    return R(type_, props, name or type_.rsplit(":", 1)[-1], links)


BOTH = [rule(INGRESS), rule(EGRESS)]
WORLD_EGRESS = R(EGRESS, {"securityGroupId": NOT_YET, "cidrIpv4": "0.0.0.0/0", "ipProtocol": "-1"}, "world")

CASES = [
    Case("both rules, known at preview", Outcome.COMPLIANT, [template(), SG, *BOTH]),
    Case("plain efa interfaces", Outcome.COMPLIANT, [template("efa"), SG, *BOTH]),
    Case("no EFA, no demand", Outcome.COMPLIANT, [template("interface"), SG]),
    Case(
        "a second group without rules",
        Outcome.COMPLIANT,
        [template(groups=("nodes", "other")), SG, OTHER, *BOTH],
    ),
    Case(
        "inline self rules",
        Outcome.COMPLIANT,
        [
            template(),
            R(GROUP, {d: [{"self": True, "protocol": "-1"}] for d in ("ingress", "egress")}, "nodes"),
        ],
    ),
    Case("no egress to itself", Outcome.VIOLATION, [template(), SG, rule(INGRESS)], "egress"),
    Case("no ingress from itself", Outcome.VIOLATION, [template(), SG, rule(EGRESS)], "ingress"),
    Case(
        "egress to the world is not egress to itself",
        Outcome.VIOLATION,
        [template(), SG, BOTH[0], WORLD_EGRESS],
    ),
    Case("TCP only", Outcome.VIOLATION, [template(), SG, rule(INGRESS, protocol="tcp"), BOTH[1]], "ingress"),
    Case(
        "rules of another group",
        Outcome.VIOLATION,
        [template(), SG, OTHER, *[rule(t, of="other") for t in (INGRESS, EGRESS)]],
    ),
    Case(
        "rules to another group",
        Outcome.VIOLATION,
        [template(), SG, OTHER, rule(INGRESS, peer="other"), BOTH[1]],
    ),
    Case(
        "no security group at all",
        Outcome.VIOLATION,
        [template(groups=()), SG, *BOTH],
        "needs a security group",
    ),
    Case("no template", Outcome.NOT_APPLICABLE, [SG]),
    Case("kind not known yet", Outcome.UNKNOWN, [template(NOT_YET), SG], "interfaceType"),
    Case(
        "protocol not known yet",
        Outcome.UNKNOWN,
        [template(), SG, rule(INGRESS, protocol=NOT_YET), BOTH[1]],
        "ingress",
    ),
    Case(
        "groups not known yet and not linked",
        Outcome.UNKNOWN,
        [
            R(
                TEMPLATE,
                {"networkInterfaces": [{"interfaceType": "efa", "securityGroups": [NOT_YET]}]},
                "template",
            ),
            SG,
        ],
        "securityGroups",
    ),
]
