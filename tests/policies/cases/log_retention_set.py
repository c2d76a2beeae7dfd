from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

GROUP = "aws:cloudwatch/logGroup:LogGroup"

CASES = [
    Case("thirty days", Outcome.COMPLIANT, [R(GROUP, {"retentionInDays": 30.0})]),
    Case("nothing said", Outcome.VIOLATION, [R(GROUP, {})], "retentionInDays"),
    Case("zero means for ever", Outcome.VIOLATION, [R(GROUP, {"retentionInDays": 0.0})], "for ever"),
    Case("a number that AWS refuses", Outcome.VIOLATION, [R(GROUP, {"retentionInDays": 31.0})], "30"),
    Case("a topic", Outcome.NOT_APPLICABLE, [R("aws:sns/topic:Topic")]),
    Case("not known yet", Outcome.UNKNOWN, [R(GROUP, {"retentionInDays": NOT_YET})], "retentionInDays"),
]
