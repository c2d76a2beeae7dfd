"""Each rule once satisfied and once broken, with the exact line that a person reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from components.names import stack_names
from components.network.plan import LARGEST_VPC_PREFIX, PRIVATE_EXTRA_BITS, SMALLEST_VPC_PREFIX, plan_subnets
from components.settings import SettingsError, group_rules, load, rules
from tests.unit.stack_files import minimal

GROUP = ("gpuGroups", 0)
IMAGE = {"profile": "dlami-pytorch-ubuntu-24.04", "amiId": "ami-0123456789abcdef0"}
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
ALL_TYPES = "g6.xlarge, g6.12xlarge, g6e.48xlarge, p4d.24xlarge, p5.48xlarge, p6-b300.48xlarge"
EFA_TYPES = "g6.12xlarge, g6e.48xlarge, p4d.24xlarge, p5.48xlarge, p6-b300.48xlarge"


class Case(NamedTuple):
    """A rule, a configuration that it refuses, the line it says, and a configuration that it accepts."""

    rule: Callable[..., Any]
    refused: dict[tuple[str | int, ...], Any]
    line: str
    accepted: dict[tuple[str | int, ...], Any]
    stack: str = "dev"


def group(**changes: Any) -> dict[tuple[str | int, ...], Any]:
    return {(*GROUP, key): value for key, value in changes.items()}


def second_group(**changes: Any) -> dict[tuple[str | int, ...], Any]:
    one = minimal()["gpuGroups"][0]
    return {("gpuGroups",): [one, {**one, "name": "others", **changes}]}


CASES = [
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
        rules.tags_are_allowed,
        {("tags",): {"aws:cost": "1"}},
        'gpu-training:tags["aws:cost"]: the prefix aws: is AWS\'s own; choose another key',
        {("tags",): {"cost:aws": "1"}},
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
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.0.0/22"},
        "gpu-training:network.cidr: 10.0.0.0/22 is too small for a public and a private subnet in every "
        "zone; "
        "take a /21 or larger, up to /16",
        {("network", "cidr"): "10.0.0.0/21"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.0.0/15"},
        "gpu-training:network.cidr: 10.0.0.0/15 is larger than AWS allows; take a /16 or smaller",
        {("network", "cidr"): "10.0.0.0/16"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "172.32.0.0/16"},
        "gpu-training:network.cidr: 172.32.0.0/16 is not private; "
        "take it from 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16",
        {("network", "cidr"): "172.31.0.0/16"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.7.0/20"},
        "gpu-training:network.cidr: '10.0.7.0/20' has bits set below its prefix; write the block's first "
        "address "
        "(nearest match: 10.0.0.0/20)",
        {("network", "cidr"): "10.0.16.0/20"},
    ),
    Case(
        rules.cidr_is_a_private_block,
        {("network", "cidr"): "10.0.0.0.0/20"},
        "gpu-training:network.cidr: '10.0.0.0.0/20' is no IPv4 block; write one such as 10.42.0.0/16",
        {},
    ),
    Case(
        rules.zones_have_room_for_their_nodes,
        {("network", "cidr"): "10.0.0.0/21", **group(zones=["us-east-1a"], maxNodes=124)},
        "gpu-training:network.cidr: 10.0.0.0/21 is too small: us-east-1a may need 124 addresses and has 123; "
        "take a larger block or fewer nodes",
        {("network", "cidr"): "10.0.0.0/21", **group(zones=["us-east-1a"], maxNodes=123)},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["us-east-1a", "us-east-2a"]},
        "gpu-training:network.availabilityZones[1]: 'us-east-2a' is no zone of us-east-1; write it like "
        "us-east-1a",
        {("network", "availabilityZones"): ["us-east-1f"]},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["us-east-1-atl-2a"]},
        "gpu-training:network.availabilityZones[0]: 'us-east-1-atl-2a' is a local or wavelength zone; use "
        "the "
        "region's own zones, such as us-east-1a: local zones have no NAT gateway and no EFA",
        {},
    ),
    Case(
        rules.zones_are_of_the_region,
        {("network", "availabilityZones"): ["us-east-1a", "us-east-1a"]},
        "gpu-training:network.availabilityZones[1]: 'us-east-1a' is there twice; name each once",
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
        "gpu-training:selfCheck.floorsTflops.bf61: unknown data type; one of fp32, tf32, bf16, fp16 "
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
    Case(
        group_rules.instance_types_are_known,
        group(instanceTypes=["p4d.24xlage"]),
        "gpu-training:gpuGroups[0].instanceTypes[0]: unknown instance type 'p4d.24xlage'; one of "
        f"{ALL_TYPES} "
        "(nearest match: p4d.24xlarge)",
        group(instanceTypes=["p4d.24xlarge"]),
    ),
    Case(
        group_rules.instance_types_are_known,
        group(instanceTypes=["g6.xlarge", "g6.xlarge"]),
        "gpu-training:gpuGroups[0].instanceTypes[1]: 'g6.xlarge' is there twice; name each type once",
        {},
    ),
    Case(
        group_rules.instance_types_are_offered,
        {
            ("region",): "eu-west-1",
            ("network", "availabilityZones"): ["eu-west-1a"],
            **group(instanceTypes=["p5.48xlarge"]),
        },
        "gpu-training:gpuGroups[0].instanceTypes[0]: p5.48xlarge is not offered in eu-west-1 (as of "
        "2026-09-30); "
        "offered in ap-northeast-1, ap-northeast-2, ap-south-1, ap-southeast-2, ap-southeast-3, "
        "ca-central-1, "
        "eu-north-1, eu-west-2, sa-east-1, us-east-1, us-east-2, us-west-1, us-west-2",
        {
            ("region",): "eu-west-1",
            ("network", "availabilityZones"): ["eu-west-1a"],
            **group(instanceTypes=["p4d.24xlarge"]),
        },
    ),
    Case(
        group_rules.instance_types_are_alike,
        group(instanceTypes=["g6.12xlarge", "g6.xlarge"], efa="off"),
        "gpu-training:gpuGroups[0].instanceTypes[1]: g6.xlarge has 1 L4, g6.12xlarge has 4 L4; "
        "put it into a group of its own",
        group(instanceTypes=["g6.12xlarge"], efa="off"),
    ),
    Case(
        group_rules.instance_types_are_alike,
        group(instanceTypes=["p4d.24xlarge", "p5.48xlarge"], zones=["us-east-1a"]),
        "gpu-training:gpuGroups[0].instanceTypes[1]: p5.48xlarge has another layout of EFA interfaces than "
        "p4d.24xlarge; put it into a group of its own, or write efa: off",
        {},
    ),
    Case(
        group_rules.zones_are_of_the_network,
        group(zones=["us-east-1c"]),
        "gpu-training:gpuGroups[0].zones[0]: 'us-east-1c' is not a zone of the network; "
        "one of us-east-1a, us-east-1b (nearest match: us-east-1b)",
        group(zones=["us-east-1b"]),
    ),
    Case(
        group_rules.zones_are_of_the_network,
        group(zones=["us-east-1a", "us-east-1a"]),
        "gpu-training:gpuGroups[0].zones[1]: 'us-east-1a' is there twice; name each zone once",
        {},
    ),
    Case(
        group_rules.efa_has_one_zone,
        group(instanceTypes=["p5.48xlarge"], efa="on"),
        "gpu-training:gpuGroups[0].zones: 2 zones for a group with EFA; name one, such as [us-east-1a]",
        group(instanceTypes=["p5.48xlarge"], efa="on", zones=["us-east-1b"]),
    ),
    Case(
        group_rules.cluster_placement_has_one_zone,
        group(placement="cluster", zones=["us-east-1b", "us-east-1a"]),
        "gpu-training:gpuGroups[0].zones: 2 zones for a group with a cluster placement; "
        "name one, such as [us-east-1b]",
        group(placement="cluster", zones=["us-east-1b"]),
    ),
    Case(
        group_rules.min_is_not_above_max,
        group(minNodes=3),
        "gpu-training:gpuGroups[0].minNodes: 3 is above maxNodes 2; at most 2, or raise maxNodes",
        group(minNodes=2),
    ),
    Case(
        group_rules.desired_is_within_bounds,
        group(minNodes=1, desiredNodes=0),
        "gpu-training:gpuGroups[0].desiredNodes: 0 is outside minNodes and maxNodes; from 1 to 2",
        group(minNodes=1, desiredNodes=1),
    ),
    Case(
        group_rules.desired_is_within_bounds,
        group(desiredNodes=3),
        "gpu-training:gpuGroups[0].desiredNodes: 3 is outside minNodes and maxNodes; from 0 to 2",
        group(desiredNodes=2),
    ),
    Case(
        group_rules.purchase_is_consistent,
        group(purchase={"maxPriceUsdPerHour": 1.5}),
        "gpu-training:gpuGroups[0].purchase.maxPriceUsdPerHour: a price limit for spot nodes, but "
        "spotPercent is 0; "
        "remove it or raise spotPercent",
        group(purchase={"maxPriceUsdPerHour": 1.5, "spotPercent": 1}),
    ),
    Case(
        group_rules.purchase_is_consistent,
        group(purchase={"onDemandBase": 2, "spotPercent": 50}),
        "gpu-training:gpuGroups[0].purchase.onDemandBase: 2 of at most 2 nodes are on demand, so "
        "spotPercent 50 "
        "never applies; lower it below maxNodes or write spotPercent: 0",
        group(purchase={"onDemandBase": 1, "spotPercent": 50}),
    ),
    Case(
        group_rules.efa_has_types_that_carry_it,
        group(efa="on", zones=["us-east-1a"]),
        "gpu-training:gpuGroups[0].efa: on, but g6.xlarge has no EFA; write auto or off, or use one of "
        f"{EFA_TYPES}",
        group(efa="on", zones=["us-east-1a"], instanceTypes=["g6.12xlarge"]),
    ),
    Case(
        group_rules.image_has_one_source,
        group(image={"profile": "local"}),
        "gpu-training:gpuGroups[0].image: neither amiId nor ssmParameter; give exactly one of them",
        group(image=IMAGE),
    ),
    Case(
        group_rules.image_has_one_source,
        group(image={**IMAGE, "ssmParameter": "/images/pytorch"}),
        "gpu-training:gpuGroups[0].image: both amiId and ssmParameter; give exactly one of them",
        group(image={"profile": "local", "ssmParameter": "/images/pytorch"}),
    ),
    Case(
        group_rules.image_profile_is_known,
        group(image={**IMAGE, "profile": "dlami-pytorch-ubuntu-22.04"}),
        "gpu-training:gpuGroups[0].image.profile: unknown image profile 'dlami-pytorch-ubuntu-22.04'; one "
        "of local, "
        "dlami-pytorch-ubuntu-24.04, dlami-base-ubuntu-24.04 (nearest match: dlami-pytorch-ubuntu-24.04)",
        group(image=IMAGE),
    ),
    Case(
        group_rules.image_serves_the_types,
        group(instanceTypes=["p6-b300.48xlarge"]),
        "gpu-training:gpuGroups[0].image.profile: dlami-pytorch-ubuntu-24.04 does not serve "
        "p6-b300.48xlarge; "
        "use local or dlami-base-ubuntu-24.04",
        group(instanceTypes=["p6-b300.48xlarge"], image={**IMAGE, "profile": "dlami-base-ubuntu-24.04"}),
    ),
]


def configured(changes: dict[tuple[str | int, ...], Any]) -> dict[str, Any]:
    namespace = minimal()
    for path, value in changes.items():
        holder: Any = namespace
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = value
    return namespace


def lines(stack: str, changes: dict[tuple[str | int, ...], Any]) -> list[str]:
    try:
        load(stack, configured(changes))
    except SettingsError as error:
        return [str(fault) for fault in error.faults]
    return []


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_refuses_with_path_fault_and_remedy(case: Case) -> None:
    assert case.line in lines(case.stack, case.refused)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule.__name__}-{CASES.index(case)}")
def test_the_rule_accepts_what_is_right(case: Case) -> None:
    stack = "dev" if case.rule is rules.stack_name_fits_names else case.stack
    assert lines(stack, case.accepted) == []


def test_every_rule_has_a_case() -> None:
    # Every type of the catalog can be in a cluster placement and is sold as spot: see the two tests below.
    by_catalog = {group_rules.placement_is_possible, group_rules.types_can_be_bought_so}
    assert {case.rule for case in CASES} | by_catalog == {*rules.RULES, *group_rules.RULES}


def without(monkeypatch: pytest.MonkeyPatch, **facts: Any) -> None:
    """The catalog with other facts about g6.xlarge."""
    types = dict(group_rules.INSTANCE_TYPES)
    types["g6.xlarge"] = types["g6.xlarge"].model_copy(update=facts)
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)


def test_a_type_without_cluster_placement_is_refused_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = group(placement="cluster", zones=["us-east-1a"])
    assert lines("dev", changes) == []
    without(monkeypatch, cluster_placement=False)
    assert lines("dev", changes) == [
        "gpu-training:gpuGroups[0].placement: g6.xlarge cannot be in a cluster placement group; write none"
    ]


def test_a_type_that_is_not_sold_as_spot_is_refused_as_spot(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = group(purchase={"spotPercent": 100})
    assert lines("dev", changes) == []
    without(monkeypatch, purchase_options=("on-demand",))
    assert lines("dev", changes) == [
        "gpu-training:gpuGroups[0].instanceTypes[0]: g6.xlarge is not sold as spot; write spotPercent: 0"
    ]


def test_a_type_that_is_not_sold_as_spot_is_accepted_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, purchase_options=("on-demand",))
    assert lines("dev", {}) == []
    one_percent = lines("dev", group(purchase={"spotPercent": 1}))
    assert one_percent == [
        "gpu-training:gpuGroups[0].instanceTypes[0]: g6.xlarge is not sold as spot; write spotPercent: 0"
    ]


def test_the_base_may_be_all_of_the_group_where_no_share_is_spot() -> None:
    assert lines("dev", group(purchase={"onDemandBase": 2})) == []
    assert len(lines("dev", group(purchase={"onDemandBase": 2, "spotPercent": 1}))) == 1


def test_a_group_of_fixed_size_may_name_its_size_thrice() -> None:
    assert lines("dev", group(minNodes=2, maxNodes=2, desiredNodes=2)) == []
    assert len(lines("dev", group(minNodes=2, maxNodes=2, desiredNodes=1))) == 1


@pytest.mark.parametrize(
    ("efa", "zones", "refused"),
    [
        ("on", ["us-east-1a"], True),
        ("auto", ["us-east-1a"], True),  # would be on
        ("auto", ["us-east-1a", "us-east-1b"], False),  # off: EFA traffic does not leave a zone
        ("off", ["us-east-1a"], False),
    ],
)
def test_other_efa_layouts_matter_only_with_efa(
    monkeypatch: pytest.MonkeyPatch, efa: str, zones: list[str], refused: bool
) -> None:
    """Two types with the same GPUs, of which one has its EFA elsewhere."""
    types = dict(group_rules.INSTANCE_TYPES)
    first = types["p4d.24xlarge"]
    types["p4d.other"] = first.model_copy(update={"name": "p4d.other", "efa_layout": first.efa_layout[:-1]})
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)
    found = lines("dev", group(instanceTypes=["p4d.24xlarge", "p4d.other"], efa=efa, zones=zones))
    assert any("another layout of EFA interfaces" in line for line in found) == refused


def test_types_with_and_without_efa_may_share_a_group_where_auto_turns_it_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    types = dict(group_rules.INSTANCE_TYPES)
    bare = {"name": "g6.bare", "max_efa_interfaces": 0, "efa_layout": ()}
    types["g6.bare"] = types["g6.12xlarge"].model_copy(update=bare)
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)
    found = lines("dev", group(instanceTypes=["g6.12xlarge", "g6.bare"], zones=["us-east-1a"]))
    assert not any("another layout" in line for line in found)


def test_types_of_two_architectures_are_refused_in_one_group(monkeypatch: pytest.MonkeyPatch) -> None:
    types = dict(group_rules.INSTANCE_TYPES)
    types["g6.arm"] = types["g6.xlarge"].model_copy(update={"name": "g6.arm", "architecture": "arm64"})
    monkeypatch.setattr(group_rules, "INSTANCE_TYPES", types)
    found = lines("dev", group(instanceTypes=["g6.xlarge", "g6.arm"], image={**IMAGE, "profile": "local"}))
    expected = "gpu-training:gpuGroups[0].instanceTypes[1]: g6.arm is arm64, g6.xlarge is x86_64; "
    assert expected + "put it into a group of its own" in found


@pytest.mark.parametrize("prefix", range(14, 26))
def test_the_cidr_rule_and_the_network_plan_refuse_the_same_blocks(prefix: int) -> None:
    """The settings may not import the plan, so the limits are written in both; they must agree."""
    refused = lines("dev", {("network", "cidr"): f"10.0.0.0/{prefix}"}) != []
    try:
        plan_subnets(f"10.0.0.0/{prefix}", ["us-east-1a"])
        assert not refused
    except ValueError:
        assert refused


def test_the_settings_know_the_plans_numbers() -> None:
    assert (rules.LARGEST_VPC_PREFIX, rules.SMALLEST_VPC_PREFIX) == (LARGEST_VPC_PREFIX, SMALLEST_VPC_PREFIX)
    assert rules.PRIVATE_EXTRA_BITS == PRIVATE_EXTRA_BITS


def test_the_longest_accepted_names_are_the_longest_that_aws_takes() -> None:
    """The settings may not import the names, so the lengths are written in both; they must agree."""
    long_prefix: dict[tuple[str | int, ...], Any] = {("namePrefix",): "sixteen-letters0"}
    datasets = stack_names(load("prod-2", configured({**long_prefix, ("datasets",): [{"name": "d" * 21}]})))
    assert len(datasets.dataset_buckets["d" * 21]) == rules.MAX_BUCKET_NAME
    artifacts = stack_names(load("s" * 23, configured(long_prefix)))
    assert len(artifacts.artifacts_bucket) == rules.MAX_BUCKET_NAME
    groups = stack_names(load("experiment1", configured({**long_prefix, **group(name="g" * 30)})))
    assert len(groups.auto_scaling_group("g" * 30) + "-node") == rules.MAX_ROLE_NAME
