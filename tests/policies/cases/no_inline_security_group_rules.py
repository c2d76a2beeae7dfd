from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

GROUP = "aws:ec2/securityGroup:SecurityGroup"

CASES = [
    Case("no rules on the group", Outcome.COMPLIANT, [R(GROUP, {"vpcId": NOT_YET})]),
    Case("inline ingress", Outcome.VIOLATION, [R(GROUP, {"ingress": [{"protocol": "-1"}]})], "ingress"),
    Case("inline egress", Outcome.VIOLATION, [R(GROUP, {"egress": [{"protocol": "-1"}]})], "egress"),
    Case("an empty list revokes others' rules", Outcome.VIOLATION, [R(GROUP, {"ingress": []})], "ingress"),
    Case(
        "the default group is managed inline",
        Outcome.NOT_APPLICABLE,
        [R("aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", {"ingress": []})],
    ),
    Case("rules not known yet", Outcome.UNKNOWN, [R(GROUP, {"egress": NOT_YET})], "egress"),
]
