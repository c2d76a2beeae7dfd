from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"

# Each validator has its bad input in `bad_inputs.py`; here is what the rule makes of what they find.
CASES = [
    Case("a sound template", Outcome.COMPLIANT, [R(TEMPLATE, {"instanceType": "p5.48xlarge"})]),
    Case(
        "a type that is misspelt",
        Outcome.VIOLATION,
        [R(TEMPLATE, {"instanceType": "p5en.48xlrge"})],
        "instanceType: no instance type 'p5en.48xlrge' (nearest match: p5en.48xlarge) [instance-type-exists]\n"
        "Fix: a type that EC2 has",
    ),
    Case(
        "two faults, both told",
        Outcome.VIOLATION,
        [R(TEMPLATE, {"instanceType": "p5en.48xlrge", "userData": "#!/bin/sh"})],
        "userData: is not base64 [user-data-is-base64]",
    ),
    Case(
        "one fault beside something unknown",
        Outcome.VIOLATION,
        [R(TEMPLATE, {"instanceType": "p5en.48xlrge", "userData": NOT_YET})],
        "instance-type-exists",
    ),
    Case(
        "user data that is not known yet", Outcome.UNKNOWN, [R(TEMPLATE, {"userData": NOT_YET})], "userData"
    ),
    Case("a type without validators", Outcome.NOT_APPLICABLE, [R("aws:ec2/ami:Ami")]),
]
