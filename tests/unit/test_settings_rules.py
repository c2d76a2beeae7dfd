"""Each rule over the whole stack, once satisfied and once broken, with the exact line that a person reads."""

from __future__ import annotations

import pytest

from components.names import stack_names
from components.settings import load, rules
from tests.unit.rule_cases import Case, Changes, configured, group, lines, second_group

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"

CASES = [
    Case(
        rules.suppressions_have_an_id_and_a_reason,
        {("suppressValidators",): {"efa-has-one-zones": "TICKET-7: as agreed"}},
        "gpu-training:suppressValidators.efa-has-one-zones: no such validator; docs/validators.md lists them "
        "(nearest match: efa-has-one-zone)",
        {("suppressValidators",): {"efa-has-one-zone": "TICKET-7: as agreed"}},
    ),
    Case(
        rules.suppressions_have_an_id_and_a_reason,
        {("suppressValidators",): {"efa-has-one-zone": "yes"}},
        "gpu-training:suppressValidators.efa-has-one-zone: no reason is given; say why, in at least 10 characters",
        {("suppressValidators",): {"efa-has-one-zone": "TICKET-7: as agreed"}},
    ),
    Case(
        rules.stack_name_fits_names,
        {},
        "gpu-training:: the stack name 'Dev_1' cannot be part of a bucket name; use a-z, 0-9 and -",
        {},
        stack="Dev_1",
    ),
    Case(
        rules.region_is_known,
        {("region",): "us-eas-1"},
        "gpu-training:region: 'us-eas-1' is no region that offers a GPU instance type of the catalog; "
        "use one that does (nearest match: us-east-1)",
        {("region",): "us-west-2", ("network", "availabilityZones"): ["us-west-2a"]},
    ),
    Case(
        rules.accounts_are_account_ids,
        {("allowedAccountIds",): ["1234"]},
        "gpu-training:allowedAccountIds[0]: '1234' is no account id; write its 12 digits in quotes",
        {("allowedAccountIds",): ["123456789012", "000000000001"]},
    ),
    Case(
        rules.accounts_are_account_ids,
        {("allowedAccountIds",): ["123456789012", "123456789012"]},
        "gpu-training:allowedAccountIds[1]: '123456789012' is there twice; name each once",
        {},
    ),
    Case(
        rules.names_fit_their_limits,
        {("namePrefix",): "sixteen-letters0", ("datasets",): [{"name": "a" * 31}]},
        "gpu-training:datasets[0].name: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' makes a bucket name above 63 "
        "characters; "
        "at most 24 characters with this prefix and stack",
        {("namePrefix",): "sixteen-letters0", ("datasets",): [{"name": "a" * 24}]},
    ),
    Case(
        rules.names_fit_their_limits,
        {("namePrefix",): "sixteen-letters0"},
        "gpu-training:namePrefix: 'sixteen-letters0-a-stack-with-a-very-long-name' makes bucket names "
        "above 63 "
        "characters; shorten the prefix or the stack's name",
        {("namePrefix",): "short"},
        stack="a-stack-with-a-very-long-name",
    ),
    Case(
        rules.prefix_is_free_for_buckets,
        {("namePrefix",): "sthree"},
        "gpu-training:namePrefix: S3 keeps bucket names that begin with sthree- to itself; choose another",
        {("namePrefix",): "sthrees"},
    ),
    Case(
        rules.tags_are_allowed,
        {("tags",): {"aws:cost": "1"}},
        'gpu-training:tags["aws:cost"]: the prefix aws: is AWS\'s own; choose another key',
        {("tags",): {"cost:aws": "1", "k": "one letter is enough"}},
    ),
    Case(
        rules.tags_are_allowed,
        {("tags",): {"Name": "mine"}},
        "gpu-training:tags.Name: the program sets this tag itself; choose another key",
        {("tags",): {"name": "mine"}},
    ),
    Case(
        rules.tags_are_allowed,
        {("tags",): {"k" * 129: ""}},
        f"gpu-training:tags.{'k' * 129}: the key has 129 characters; at least 1, at most 128",
        {("tags",): {"k" * 128: ""}},
    ),
    Case(
        rules.tags_are_allowed,
        {("tags",): {"team": "v" * 257}},
        "gpu-training:tags.team: the value has 257 characters; at most 256",
        {("tags",): {"team": "v" * 256}},
    ),
    Case(
        rules.tags_are_allowed,
        {("tags",): {f"k{n}": "" for n in range(41)}},
        "gpu-training:tags: 41 tags; at most 40",
        {("tags",): {f"k{n}": "" for n in range(40)}},
    ),
    Case(
        rules.kms_mode_and_key_agree,
        {("kms",): {"mode": "existing"}},
        "gpu-training:kms.keyArn: missing; mode existing needs the key's ARN",
        {("kms",): {"mode": "existing", "keyArn": KEY}},
    ),
    Case(
        rules.kms_mode_and_key_agree,
        {("kms",): {"mode": "create", "keyArn": KEY}},
        "gpu-training:kms.keyArn: mode create does not use it; remove it or write mode: existing",
        {("kms",): {"mode": "create"}},
    ),
    Case(
        rules.kms_mode_and_key_agree,
        {("kms",): {"mode": "existing", "keyArn": KEY.replace("us-east-1", "eu-west-1")}},
        "gpu-training:kms.keyArn: the key is not in us-east-1; use a key of the stack's region",
        {},
    ),
    Case(
        rules.log_retention_is_one_that_cloudwatch_takes,
        {("monitoring",): {"retentionDays": 31}},
        "gpu-training:monitoring.retentionDays: CloudWatch does not keep logs for 31 days; one of 1, 3, 5, "
        "7, 14, "
        "30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653 "
        "(nearest match: 30)",
        {("monitoring",): {"retentionDays": 365}},
    ),
    Case(
        rules.flow_log_retention_is_one_that_cloudwatch_takes,
        {("network", "flowLogRetentionDays"): 10},
        "gpu-training:network.flowLogRetentionDays: CloudWatch does not keep logs for 10 days; one of 1, "
        "3, 5, 7, "
        "14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653 "
        "(nearest match: 7)",
        {("network", "flowLogRetentionDays"): 14},
    ),
    Case(
        rules.names_are_unique,
        {("datasets",): [{"name": "shapes"}, {"name": "shapes"}]},
        "gpu-training:datasets[1].name: 'shapes' is there twice; name each once",
        {("datasets",): [{"name": "shapes"}, {"name": "shapes-2"}]},
    ),
    Case(
        rules.group_names_are_unique,
        second_group(name="trainers"),
        "gpu-training:gpuGroups[1].name: 'trainers' is there twice; name each once",
        second_group(name="trainers-2"),
    ),
    Case(
        rules.role_names_fit,
        {("namePrefix",): "sixteen-letters0", **group(name="g" * 31)},
        f"gpu-training:gpuGroups[0].name: '{'g' * 31}' makes an IAM role name above 64 characters; "
        "at most 28 characters with this prefix and stack",
        {("namePrefix",): "sixteen-letters0", **group(name="g" * 28)},
        stack="experiment-12",
    ),
    Case(
        rules.floors_are_speeds,
        {("selfCheck",): {"floorsTflops": {"bf61": 1.0}}},
        "gpu-training:selfCheck.floorsTflops.bf61: unknown data type; one of fp32, tf32, bf16, fp16, fp8 "
        "(nearest match: bf16)",
        {("selfCheck",): {"floorsTflops": {"bf16": 1.0}}},
    ),
    Case(
        rules.floors_are_speeds,
        {("selfCheck",): {"floorsTflops": {"bf16": 0.0}}},
        "gpu-training:selfCheck.floorsTflops.bf16: 0.0 is no speed; write TFLOPS above 0",
        {},
    ),
    Case(
        rules.cluster_and_kubeconfig_agree,
        {("monitoring",): {"cluster": "existing"}},
        "gpu-training:monitoring.kubeconfig: missing; cluster existing needs it: "
        "pulumi config set --secret --path gpu-training:monitoring.kubeconfig < kubeconfig",
        {("monitoring",): {"cluster": "existing", "kubeconfig": "apiVersion: v1"}},
    ),
    Case(
        rules.cluster_and_kubeconfig_agree,
        {("monitoring",): {"kubeconfig": "apiVersion: v1"}},
        "gpu-training:monitoring.kubeconfig: cluster none does not use it; remove it or write cluster: "
        "existing",
        {},
    ),
    Case(
        rules.alert_addresses_are_addresses,
        {("monitoring",): {"alerts": {"emails": ["oncall.example.com"]}}},
        "gpu-training:monitoring.alerts.emails[0]: 'oncall.example.com' is no e-mail address; "
        "write one address, such as gpu-oncall@example.com",
        {("monitoring",): {"alerts": {"emails": ["on-call+gpu@mail.example.com"]}}},
    ),
    Case(
        rules.alert_topic_is_of_the_region,
        {("monitoring",): {"alerts": {"snsTopicArn": "arn:aws:sns:eu-west-1:123456789012:pages"}}},
        "gpu-training:monitoring.alerts.snsTopicArn: the topic is not in us-east-1; "
        "alarms reach topics of their own region only",
        {("monitoring",): {"alerts": {"snsTopicArn": "arn:aws:sns:us-east-1:123456789012:pages"}}},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_refuses_with_path_fault_and_remedy(case: Case) -> None:
    assert case.line in lines(case.stack, case.refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_accepts_what_is_right(case: Case) -> None:
    stack = "dev" if case.rule is rules.stack_name_fits_names else case.stack
    assert lines(stack, case.accepted) == []


def test_every_rule_has_a_case() -> None:
    own = {rule for rule in rules.RULES if rule.__module__ == rules.__name__}
    assert {case.rule for case in CASES} == own


def test_the_longest_accepted_names_are_the_longest_that_aws_takes() -> None:
    """The settings may not import the names, so the lengths are written in both; they must agree."""
    long_prefix: Changes = {("namePrefix",): "sixteen-letters0"}
    datasets = stack_names(load("prod-2", configured({**long_prefix, ("datasets",): [{"name": "d" * 21}]})))
    assert len(datasets.dataset_buckets["d" * 21]) == rules.MAX_BUCKET_NAME
    logs = stack_names(load("s" * 21, configured(long_prefix)))
    assert len(logs.access_logs_bucket) == rules.MAX_BUCKET_NAME
    assert len(logs.artifacts_bucket) < rules.MAX_BUCKET_NAME
    groups = stack_names(load("experiment1", configured({**long_prefix, **group(name="g" * 30)})))
    assert len(groups.auto_scaling_group("g" * 30) + "-node") == rules.MAX_ROLE_NAME
