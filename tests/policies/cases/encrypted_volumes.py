from policies.rules._judge import Outcome
from tests.policies.kit import NOT_YET, Case, R

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"
VOLUME = "aws:ebs/volume:Volume"


def template(*ebs: object) -> list[R]:
    return [R(TEMPLATE, {"blockDeviceMappings": [{"deviceName": "/dev/sda1", "ebs": one} for one in ebs]})]


CASES = [
    Case("encrypted root, spelt as templates do", Outcome.COMPLIANT, template({"encrypted": "true"})),
    Case("encrypted root, spelt as a boolean", Outcome.COMPLIANT, template({"encrypted": True})),
    Case(
        "instance store beside it",
        Outcome.COMPLIANT,
        [
            R(
                TEMPLATE,
                {"blockDeviceMappings": [{"ebs": {"encrypted": "true"}}, {"virtualName": "ephemeral0"}]},
            )
        ],
    ),
    Case("an encrypted volume", Outcome.COMPLIANT, [R(VOLUME, {"encrypted": True})]),
    Case("an encrypted instance", Outcome.COMPLIANT, [R(INSTANCE, {"rootBlockDevice": {"encrypted": True}})]),
    Case(
        "plain root",
        Outcome.VIOLATION,
        template({"encrypted": "false"}),
        "blockDeviceMappings[0].ebs.encrypted",
    ),
    Case("root says nothing", Outcome.VIOLATION, template({"volumeSize": 200}), "encrypted"),
    Case("second disk plain", Outcome.VIOLATION, template({"encrypted": True}, {}), "blockDeviceMappings[1]"),
    Case("no devices declared", Outcome.VIOLATION, [R(TEMPLATE, {})], "root device is not declared"),
    Case("a plain volume", Outcome.VIOLATION, [R(VOLUME, {})], "encrypted"),
    Case("an instance that says nothing", Outcome.VIOLATION, [R(INSTANCE, {})], "rootBlockDevice"),
    Case("a queue", Outcome.NOT_APPLICABLE, [R("aws:sqs/queue:Queue")]),
    Case("encryption not known yet", Outcome.UNKNOWN, template({"encrypted": NOT_YET}), "ebs.encrypted"),
    Case("a device not known yet", Outcome.UNKNOWN, [R(TEMPLATE, {"blockDeviceMappings": [NOT_YET]})], "[0]"),
    Case(
        "devices not known yet",
        Outcome.UNKNOWN,
        [R(TEMPLATE, {"blockDeviceMappings": NOT_YET})],
        "blockDevice",
    ),
    Case(
        "an unknown disk hides no plain one",
        Outcome.VIOLATION,
        template({"encrypted": NOT_YET}, {"encrypted": "false"}),
        "blockDeviceMappings[1]",
    ),
]
