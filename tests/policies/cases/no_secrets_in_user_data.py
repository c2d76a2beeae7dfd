import base64
import gzip

from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
BOOT = """#!/bin/bash
TOKEN=$(curl -sX PUT "$IMDS/latest/api/token" -H "X-aws-ec2-metadata-token-ttl-seconds: 300")
curl -H "X-aws-ec2-metadata-token: $TOKEN" "$IMDS/latest/meta-data/instance-id"
aws s3 cp "s3://bucket/groups/g/node-0123456789abcdef.json" - | sha256sum
API_KEY="$(aws secretsmanager get-secret-value --secret-id gpu/key)"
SECRET=arn:aws:secretsmanager:us-east-1:123456789012:secret:wandb
"""


def template(script: str) -> list[R]:
    return [R(TEMPLATE, {"userData": base64.b64encode(script.encode()).decode()})]


def leak(line: str) -> list[R]:
    return template(f"#!/bin/bash\n{line}\n")


# Put together at run time, so that no scanner takes this file for a leak.
CASES = [
    Case("references only", Outcome.COMPLIANT, template(BOOT)),
    Case("none at all", Outcome.COMPLIANT, [R(TEMPLATE, {})]),
    Case("an instance's plain script", Outcome.COMPLIANT, [R(INSTANCE, {"userData": BOOT})]),
    Case("an access key", Outcome.VIOLATION, leak("export KEY_ID=" + "AKIA" + "Q" * 16), "line 2"),
    Case("its secret half", Outcome.VIOLATION, leak("AWS_SECRET_ACCESS_KEY=" + "a1" * 20), "literal secret"),
    Case("a private key", Outcome.VIOLATION, leak("-----BEGIN " + "RSA PRIVATE KEY-----"), "private key"),
    Case("a GitHub token", Outcome.VIOLATION, leak("git clone https://gh" + "p_" + "a" * 36), "GitHub"),
    Case("a Hugging Face token", Outcome.VIOLATION, leak("login hf" + "_" + "b" * 34), "Hugging Face"),
    Case("a password in JSON", Outcome.VIOLATION, leak('{"password": "correct-horse"}'), "literal secret"),
    Case(
        "a password in a URL",
        Outcome.VIOLATION,
        leak("pip install https://me:" + "hunter22" + "@host/x"),
        "URL",
    ),
    Case(
        "in an instance",
        Outcome.VIOLATION,
        [R(INSTANCE, {"userData": "WANDB_API_KEY=" + "0f" * 20})],
        "line 1",
    ),
    Case(
        "compressed",
        Outcome.VIOLATION,
        [
            R(
                INSTANCE,
                {"userDataBase64": base64.b64encode(gzip.compress(b"API_KEY=" + b"1234abcd" * 3)).decode()},
            )
        ],
        "userDataBase64",
    ),
    Case("not base64", Outcome.VIOLATION, [R(TEMPLATE, {"userData": BOOT})], "not base64"),
    Case("a group", Outcome.NOT_APPLICABLE, [R("aws:autoscaling/group:Group")]),
    Case("not known yet", Outcome.UNKNOWN, [R(TEMPLATE, {"userData": NOT_YET})], "userData"),
]
