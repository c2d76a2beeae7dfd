from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
PINNED, NAMED = "ami-0123456789abcdef0", "resolve:ssm:/gpu-training/images/pytorch"


def template(image: str | None, stack: str = "prod") -> list[R]:
    return [R(TEMPLATE, {} if image is None else {"imageId": image}, stack=stack)]


CASES = [
    Case("an id", Outcome.COMPLIANT, template(PINNED)),
    Case("a parameter outside production", Outcome.COMPLIANT, template(NAMED, "dev")),
    Case("a parameter", Outcome.VIOLATION, template(NAMED), "resolve:ssm:/gpu-training/images/pytorch"),
    Case("no image", Outcome.VIOLATION, template(None), "no image"),
    Case(
        "an instance's",
        Outcome.VIOLATION,
        [R("aws:ec2/instance:Instance", {"ami": NAMED}, stack="prod")],
        "ami: ",
    ),
    Case("an id that something else gives", Outcome.UNKNOWN, template(NOT_YET), "imageId"),
    Case("a bucket", Outcome.NOT_APPLICABLE, [R("aws:s3/bucket:Bucket", stack="prod")]),
]
