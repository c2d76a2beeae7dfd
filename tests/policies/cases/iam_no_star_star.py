import json
from typing import Any

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

POLICY = "aws:iam/rolePolicy:RolePolicy"
ROLE = "aws:iam/role:Role"


def policy(**statement: Any) -> list[R]:
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}
    return [R(POLICY, {"policy": json.dumps(document)})]


CASES = [
    Case(
        "named actions on a bucket",
        Outcome.COMPLIANT,
        policy(Action=["s3:GetObject"], Resource="arn:aws:s3:::b/*"),
    ),
    Case(
        "named actions on everything", Outcome.COMPLIANT, policy(Action="ec2:DescribeInstances", Resource="*")
    ),
    Case("denying everything", Outcome.COMPLIANT, policy(Effect="Deny", Action="*", Resource="*")),
    Case(
        "a role with a narrow managed policy",
        Outcome.COMPLIANT,
        [R(ROLE, {"managedPolicyArns": ["arn:x/Pull"]})],
    ),
    Case("everything", Outcome.VIOLATION, policy(Action="*", Resource="*"), "statement 0"),
    Case("a whole service", Outcome.VIOLATION, policy(Action=["s3:*"], Resource=["*"]), "statement 0"),
    Case("everything but", Outcome.VIOLATION, policy(NotAction="iam:*", Resource="*"), "statement 0"),
    Case(
        "inline in a role",
        Outcome.VIOLATION,
        [
            R(
                ROLE,
                {
                    "inlinePolicies": [
                        {"policy": '{"Statement":{"Effect":"Allow","Action":"*","Resource":"*"}}'}
                    ]
                },
            )
        ],
        "inlinePolicies[0].policy",
    ),
    Case(
        "administrator access attached",
        Outcome.VIOLATION,
        [
            R(
                "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
                {"policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"},
            )
        ],
        "AdministratorAccess",
    ),
    Case("no JSON", Outcome.VIOLATION, [R(POLICY, {"policy": "allow all"})], "no IAM policy"),
    Case("a bucket policy", Outcome.NOT_APPLICABLE, [R("aws:s3/bucketPolicy:BucketPolicy")]),
    Case("not known yet", Outcome.UNKNOWN, [R(POLICY, {"policy": NOT_YET})], "policy"),
    Case(
        "an unknown attachment hides no other",
        Outcome.VIOLATION,
        [R(ROLE, {"managedPolicyArns": [NOT_YET, "arn:aws:iam::aws:policy/PowerUserAccess"]})],
        "PowerUserAccess",
    ),
]
