from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
OLD = "aws:ec2/securityGroupRule:SecurityGroupRule"
GROUP = "aws:ec2/securityGroup:SecurityGroup"

CASES = [
    Case("a private block", Outcome.COMPLIANT, [R(RULE, {"cidrIpv4": "10.42.0.0/16"})]),
    Case("a security group", Outcome.COMPLIANT, [R(RULE, {"referencedSecurityGroupId": NOT_YET})]),
    Case("egress to the world", Outcome.COMPLIANT, [R(OLD, {"type": "egress", "cidrBlocks": ["0.0.0.0/0"]})]),
    Case("one public address", Outcome.COMPLIANT, [R(RULE, {"cidrIpv4": "203.0.113.7/32"})]),
    Case("the world", Outcome.VIOLATION, [R(RULE, {"cidrIpv4": "0.0.0.0/0"})], "0.0.0.0/0"),
    Case("the IPv6 world", Outcome.VIOLATION, [R(RULE, {"cidrIpv6": "::/0"})], "::/0"),
    Case("half of the world", Outcome.VIOLATION, [R(RULE, {"cidrIpv4": "128.0.0.0/1"})], "128.0.0.0/1"),
    Case("all global IPv6 addresses", Outcome.VIOLATION, [R(RULE, {"cidrIpv6": "2000::/3"})], "2000::/3"),
    Case(
        "the older rule resource",
        Outcome.VIOLATION,
        [R(OLD, {"type": "ingress", "cidrBlocks": ["0.0.0.0/0"]})],
    ),
    Case(
        "inline",
        Outcome.VIOLATION,
        [R(GROUP, {"ingress": [{"cidrBlocks": ["10.0.0.0/8", "0.0.0.0/0"]}]})],
        "[1]",
    ),
    Case(
        "inline IPv6",
        Outcome.VIOLATION,
        [R(GROUP, {"ingress": [{"ipv6CidrBlocks": ["::/0"]}]})],
        "ipv6CidrBlocks",
    ),
    Case("no CIDR block", Outcome.VIOLATION, [R(RULE, {"cidrIpv4": "everyone"})], "no CIDR block"),
    Case(
        "an egress rule",
        Outcome.NOT_APPLICABLE,
        [R("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule")],
    ),
    Case("block not known yet", Outcome.UNKNOWN, [R(RULE, {"cidrIpv4": NOT_YET})], "cidrIpv4"),
    Case(
        "direction not known yet",
        Outcome.UNKNOWN,
        [R(OLD, {"type": NOT_YET, "cidrBlocks": ["::/0"]})],
        "type",
    ),
    Case("inline rules not known yet", Outcome.UNKNOWN, [R(GROUP, {"ingress": NOT_YET})], "ingress"),
    Case(
        "an unknown block hides no open one",
        Outcome.VIOLATION,
        [R(RULE, {"cidrIpv4": NOT_YET, "cidrIpv6": "::/0"})],
        "cidrIpv6",
    ),
]
