from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"


def template(**options: object) -> list[R]:
    return [R(TEMPLATE, {"metadataOptions": options})]


CASES = [
    Case("tokens required", Outcome.COMPLIANT, template(httpTokens="required", httpPutResponseHopLimit=2.0)),
    Case("tokens required, default hop limit", Outcome.COMPLIANT, template(httpTokens="required")),
    Case(
        "an instance with tokens",
        Outcome.COMPLIANT,
        [R(INSTANCE, {"metadataOptions": {"httpTokens": "required"}})],
    ),
    Case("tokens optional", Outcome.VIOLATION, template(httpTokens="optional"), "httpTokens"),
    Case("no metadata options at all", Outcome.VIOLATION, [R(TEMPLATE, {})], "metadataOptions.httpTokens"),
    Case("an instance without options", Outcome.VIOLATION, [R(INSTANCE, {})], "httpTokens"),
    Case(
        "five hops", Outcome.VIOLATION, template(httpTokens="required", httpPutResponseHopLimit=5.0), "2 hops"
    ),
    Case("a bucket", Outcome.NOT_APPLICABLE, [R("aws:s3/bucket:Bucket")]),
    Case("tokens not known yet", Outcome.UNKNOWN, template(httpTokens=NOT_YET), "metadataOptions.httpTokens"),
    Case(
        "options not known yet",
        Outcome.UNKNOWN,
        [R(TEMPLATE, {"metadataOptions": NOT_YET})],
        "metadataOptions",
    ),
    Case(
        "an unknown property hides no violation of another",
        Outcome.VIOLATION,
        template(httpTokens=NOT_YET, httpPutResponseHopLimit=64.0),
        "2 hops",
    ),
]
