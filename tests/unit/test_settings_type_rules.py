"""Rules over a group's instance types and image: each once satisfied and once broken, with the exact line."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.catalog import INSTANCE_TYPES, image_profile, images_for
from components.compute.plan import uses_efa
from components.settings import advice, image_rules, load, type_rules
from components.settings.group_model import GpuGroupSettings
from tests.unit.rule_cases import IMAGE, Case, Changes, configured, group, lines

AT = "gpu-training:gpuGroups[0]"
ONE_ZONE = ["us-east-1a"]
ARM_IMAGE = {**IMAGE, "profile": "dlami-base-arm64-ubuntu-24.04"}
EU_WEST_1: Changes = {("region",): "eu-west-1", ("network", "availabilityZones"): ["eu-west-1a"]}
ZONE_IDS: Changes = {("network", "availabilityZones"): ["use1-az2", "use1-az3"]}

SETTINGS = load("dev", configured({}))


def zones(count: int) -> Changes:
    return {("network", "availabilityZones"): [f"us-east-1{letter}" for letter in "abcdef"[:count]]}


CASES = [
    Case(
        type_rules.instance_types_are_known,
        group(instanceTypes=["p4d.24xlage"]),
        f"{AT}.instanceTypes[0]: unknown instance type 'p4d.24xlage'; one of p4d.24xlarge; `make catalog` lists "
        "all (nearest match: p4d.24xlarge)",
        group(instanceTypes=["p4d.24xlarge"]),
    ),
    Case(
        type_rules.instance_types_are_known,
        group(instanceTypes=["m5.large"]),
        f"{AT}.instanceTypes[0]: unknown instance type 'm5.large'; one of g4dn, g5, g5g, g6, g6e, g6f, g7, g7e, "
        "gr6, gr6f, p3, p3dn, p4d, p4de, p5, p5e, p5en, p6-b200, p6-b300, p6e-gb200; `make catalog` lists all "
        "(nearest match: g5.xlarge)",
        group(instanceTypes=["g6f.large"]),
    ),
    Case(
        type_rules.instance_types_are_known,
        group(instanceTypes=["p6e-gb300.36xlarge"]),
        f"{AT}.instanceTypes[0]: no specification of p6e-gb300 was found; use another type",
        {},
    ),
    Case(
        type_rules.instance_types_are_known,
        group(instanceTypes=["g6.xlarge", "g6.xlarge"]),
        f"{AT}.instanceTypes[1]: 'g6.xlarge' is there twice; name each type once",
        {},
    ),
    Case(
        type_rules.instance_types_are_offered,
        {**EU_WEST_1, **group(instanceTypes=["p5.48xlarge"])},
        f"{AT}.instanceTypes[0]: p5.48xlarge is not offered in eu-west-1 (as of 2026-09-30); offered in "
        "ap-northeast-1, ap-northeast-2, ap-south-1, ap-southeast-2, ap-southeast-3, ca-central-1, eu-north-1, "
        "eu-west-2, sa-east-1, us-east-1, us-east-2, us-west-1, us-west-2",
        {**EU_WEST_1, **group(instanceTypes=["p4d.24xlarge"])},
    ),
    Case(
        type_rules.instance_types_are_offered,
        group(instanceTypes=["p6e-gb200.36xlarge"], image=ARM_IMAGE),
        f"{AT}.instanceTypes[0]: p6e-gb200.36xlarge is offered in a local zone of us-east-1 only (as of "
        "2026-06-30); the network has the region's own zones: use another type",
        {},
    ),
    Case(
        type_rules.instance_types_are_alike,
        group(instanceTypes=["g6.12xlarge", "g6.xlarge"], efa="off"),
        f"{AT}.instanceTypes[1]: g6.xlarge has 1 L4, g6.12xlarge has 4 L4; put it into a group of its own",
        group(instanceTypes=["g6.12xlarge", "g6.24xlarge"], efa="off"),
    ),
    Case(
        type_rules.instance_types_are_alike,
        group(instanceTypes=["g6.xlarge", "g6f.2xlarge"]),
        f"{AT}.instanceTypes[1]: g6f.2xlarge has 1/4 L4, g6.xlarge has 1 L4; put it into a group of its own",
        group(instanceTypes=["g6f.large", "g6f.xlarge"]),  # an eighth each
    ),
    Case(
        type_rules.instance_types_are_alike,
        group(instanceTypes=["g6.xlarge", "g5g.xlarge"]),
        f"{AT}.instanceTypes[1]: g5g.xlarge is arm64, g6.xlarge is x86_64; put it into a group of its own",
        {},
    ),
    Case(
        type_rules.instance_types_are_alike,
        group(instanceTypes=["p4d.24xlarge", "p4de.24xlarge"], zones=ONE_ZONE),
        f"{AT}.instanceTypes[1]: EFA of p4de.24xlarge reaches no node of another type, such as p4d.24xlarge; "
        "put it into a group of its own, or write efa: off",
        group(instanceTypes=["p4d.24xlarge", "p4de.24xlarge"], zones=ONE_ZONE, efa="off"),
    ),
    Case(
        type_rules.efa_has_types_that_carry_it,
        group(efa="on", zones=ONE_ZONE),
        f"{AT}.efa: on, but g6.xlarge has no EFA; write auto or off; use one of g6.8xlarge, g6.12xlarge, "
        "g6.16xlarge, g6.24xlarge, g6.48xlarge",
        group(efa="on", zones=ONE_ZONE, instanceTypes=["g6.8xlarge"]),
    ),
    Case(
        type_rules.efa_has_types_that_carry_it,
        group(efa="on", zones=ONE_ZONE, instanceTypes=["g5g.xlarge"], image=ARM_IMAGE),
        f"{AT}.efa: on, but g5g.xlarge has no EFA; write auto or off; no size of g5g has it",
        group(efa="on", zones=ONE_ZONE, instanceTypes=["p5.4xlarge"]),
    ),
    Case(
        image_rules.image_has_one_source,
        group(image={"profile": "local"}),
        f"{AT}.image: neither amiId nor ssmParameter; give exactly one of them",
        group(image=IMAGE),
    ),
    Case(
        image_rules.image_has_one_source,
        group(image={**IMAGE, "ssmParameter": "/images/pytorch"}),
        f"{AT}.image: both amiId and ssmParameter; give exactly one of them",
        group(image={"profile": "local", "ssmParameter": "/images/pytorch"}),
    ),
    Case(
        image_rules.image_profile_is_known,
        group(image={**IMAGE, "profile": "dlami-pytorch-ubuntu-22.04"}),
        f"{AT}.image.profile: unknown image profile 'dlami-pytorch-ubuntu-22.04'; one of local, "
        "dlami-pytorch-ubuntu-24.04, dlami-pytorch-amazon-linux-2023, dlami-base-ubuntu-24.04, "
        "dlami-base-arm64-ubuntu-24.04 (nearest match: dlami-pytorch-ubuntu-24.04)",
        group(image=IMAGE),
    ),
    Case(
        image_rules.image_serves_the_types,
        group(instanceTypes=["p6-b300.48xlarge"]),
        f"{AT}.image.profile: dlami-pytorch-ubuntu-24.04 does not serve p6-b300.48xlarge: its release notes of "
        "2026-10-05 do not list p6-b300; use dlami-base-ubuntu-24.04",
        group(instanceTypes=["p6-b300.48xlarge"], image={**IMAGE, "profile": "dlami-base-ubuntu-24.04"}),
    ),
    Case(
        image_rules.image_serves_the_types,
        group(instanceTypes=["p3dn.24xlarge"]),
        f"{AT}.image.profile: dlami-pytorch-ubuntu-24.04 does not serve p3dn.24xlarge: the V100 of p3dn.24xlarge "
        "needs the proprietary NVIDIA driver; no image profile has the proprietary NVIDIA driver: use another "
        "type, or suppress this for an image of your own",
        {
            **group(instanceTypes=["p3dn.24xlarge"]),
            ("suppressValidators",): {"image-serves-the-types": "our own image"},
        },
    ),
    Case(
        image_rules.image_serves_the_types,
        group(instanceTypes=["g7.2xlarge"]),
        f"{AT}.image.profile: dlami-pytorch-ubuntu-24.04 does not serve g7.2xlarge: its release notes of "
        "2026-10-05 do not list g7; no release notes of Deep Learning AMIs up to 2026-10-09 list g7: use another "
        "type, or suppress this for an image of your own",
        group(instanceTypes=["g7e.2xlarge"], image={**IMAGE, "profile": "dlami-base-ubuntu-24.04"}),
    ),
]

WARNINGS = [
    Case(
        type_rules.zone_offers_the_type,
        {**ZONE_IDS, **group(instanceTypes=["p5en.48xlarge"])},
        f"{AT}.zones: use1-az3 does not offer p5en.48xlarge; as of 2026-09-30 us-east-1 offers it in use1-az2, "
        "use1-az6",
        {**ZONE_IDS, **group(instanceTypes=["p5en.48xlarge"], zones=["use1-az2"])},
    ),
    Case(
        type_rules.zone_offers_the_type,
        {**ZONE_IDS, **group(instanceTypes=["p5en.48xlarge"], zones=["use1-az2", "use1-az3"])},
        f"{AT}.zones[1]: use1-az3 does not offer p5en.48xlarge; as of 2026-09-30 us-east-1 offers it in "
        "use1-az2, use1-az6",
        {**ZONE_IDS, **group(instanceTypes=["p5.48xlarge"])},
    ),
    Case(
        type_rules.zone_offers_the_type,
        {**zones(3), **group(instanceTypes=["p5en.48xlarge"])},
        f"{AT}.zones: at least 1 of 3 zones cannot offer p5en.48xlarge; as of 2026-09-30 us-east-1 offers it in "
        "use1-az2, use1-az6: name the zones of these ids, which `aws ec2 describe-availability-zones` shows",
        {**zones(2), **group(instanceTypes=["p5en.48xlarge"])},  # they may be the right ones
    ),
    Case(
        type_rules.few_zones_offer_the_type,
        group(instanceTypes=["p5en.48xlarge"], zones=ONE_ZONE),
        f"{AT}.zones: p5en.48xlarge is offered in 2 of 6 zones of us-east-1: use1-az2, use1-az6 (as of "
        "2026-09-30); make sure that us-east-1a is one of them in your account, or write zone ids",
        group(instanceTypes=["g6.xlarge"], zones=ONE_ZONE),  # in 5 of 6: not worth a line
    ),
    Case(
        type_rules.efa_layout_makes_a_difference,
        group(instanceTypes=["p5en.48xlarge"], zones=ONE_ZONE, efaLayout="bandwidth-optimized"),
        f"{AT}.efaLayout: p5en.48xlarge: one address has the whole IP bandwidth; remove it",
        group(instanceTypes=["p6-b200.48xlarge"], zones=ONE_ZONE, efaLayout="bandwidth-optimized"),
    ),
    Case(
        type_rules.efa_layout_makes_a_difference,
        group(instanceTypes=["p5.48xlarge"], efa="off", efaLayout="bandwidth-optimized"),
        f"{AT}.efaLayout: the group's nodes have no EFA, and one interface each; remove it",
        group(instanceTypes=["p5.48xlarge"], zones=ONE_ZONE, efaLayout="bandwidth-optimized"),
    ),
]


def named(case: Case) -> str:
    return f"{case.rule.__name__}-{(CASES + WARNINGS).index(case)}"


def advised(changes: Changes, rule: Any) -> list[str]:
    """What the rule tells without refusing the configuration."""
    found = advice(load("dev", configured(changes)))
    id_ = rule.__name__.replace("_", "-")
    return [str(fault) for fault in found if fault.validator == id_]


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_rule_refuses_with_path_fault_and_remedy(case: Case) -> None:
    assert case.line in lines(case.stack, case.refused)


@pytest.mark.parametrize("case", CASES, ids=named)
def test_the_rule_accepts_what_is_right(case: Case) -> None:
    assert lines(case.stack, case.accepted) == []


@pytest.mark.parametrize("case", WARNINGS, ids=named)
def test_what_is_doubtful_is_told_and_stops_nothing(case: Case) -> None:
    assert advised(case.refused, case.rule) == [case.line]
    assert advised(case.accepted, case.rule) == []


def test_every_rule_has_a_case() -> None:
    by_catalog = {type_rules.interfaces_are_ones_that_ec2_takes}  # no row of the catalog breaks it, see below
    tried = {case.rule for case in CASES + WARNINGS} | by_catalog
    assert tried == {*type_rules.RULES, *image_rules.RULES}


def test_a_row_with_wrong_cards_is_told_before_ec2_refuses_the_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    changes = group(instanceTypes=["p4d.24xlarge"], zones=ONE_ZONE)
    assert lines("dev", changes) == []
    types = dict(INSTANCE_TYPES)
    wrong = types["p4d.24xlarge"].network_cards[0].model_copy(update={"max_interfaces": 1})
    types["p4d.24xlarge"] = types["p4d.24xlarge"].model_copy(update={"network_cards": (wrong,)})
    monkeypatch.setattr(type_rules, "INSTANCE_TYPES", types)
    assert lines("dev", changes) == [
        f"{AT}.instanceTypes[0]: device index 1 on card 0 of p4d.24xlarge is too high; correct the type's row in "
        "the catalog"
    ]


@pytest.mark.parametrize("name", ["g5g.xlarge", "g5g.metal"])
def test_an_arm_type_gets_no_x86_image(name: str) -> None:
    """pulumi-eks#738: an image of the wrong architecture, found out at boot."""
    for profile in ("local", "dlami-pytorch-ubuntu-24.04", "dlami-base-ubuntu-24.04"):
        (line,) = lines("dev", group(instanceTypes=[name], image={**IMAGE, "profile": profile}))
        assert f"{profile} does not serve {name}: it is x86_64, {name} is arm64" in line
        assert line.endswith("use dlami-base-arm64-ubuntu-24.04")
    assert lines("dev", group(instanceTypes=[name], image=ARM_IMAGE)) == []


def test_an_image_that_is_advised_has_the_types_driver() -> None:
    """eksctl#7794: g6 got an image without a GPU driver."""
    for type_ in INSTANCE_TYPES.values():
        for image in map(image_profile, images_for(type_)):
            assert image.accelerator == "nvidia" and type_.driver in image.drivers
            assert image.architecture == type_.architecture
    assert "local" not in images_for(INSTANCE_TYPES["g6.xlarge"])


def test_types_of_two_layouts_may_share_a_group_where_their_gpus_are_alike() -> None:
    two = group(instanceTypes=["p5e.48xlarge", "p5en.48xlarge"], zones=["us-west-2a"])
    west: Changes = {("region",): "us-west-2", ("network", "availabilityZones"): ["us-west-2a", "us-west-2b"]}
    assert lines("dev", {**west, **two}) == []


@given(
    st.sampled_from(["auto", "on", "off"]),
    st.lists(st.sampled_from(sorted(INSTANCE_TYPES)), min_size=1, max_size=3, unique=True),
    st.sampled_from([ONE_ZONE, ["us-east-1a", "us-east-1b"]]),
)
def test_the_rules_and_the_plan_agree_on_efa(choice: str, names: list[str], in_zones: list[str]) -> None:
    one = GpuGroupSettings.model_construct(instance_types=names, zones=in_zones, efa=choice)
    assert type_rules.efa_is_wanted(one, SETTINGS) == uses_efa(
        choice, [INSTANCE_TYPES[name] for name in names], in_zones
    )


@pytest.mark.parametrize(
    ("layout", "nodes"),
    # A /21 has 123 free addresses in a zone's private subnet; a p5 node takes one of them, or eight.
    [("ip-optimized", 123), ("bandwidth-optimized", 15)],
)
def test_a_zone_has_room_for_the_addresses_that_nodes_take(layout: str, nodes: int) -> None:
    def with_nodes(count: int) -> list[str]:
        wide = {"zones": ONE_ZONE, "instanceTypes": ["p5.48xlarge"], "efaLayout": layout, "maxNodes": count}
        return lines("dev", {("network", "cidr"): "10.42.0.0/21", **group(**wide)})

    assert with_nodes(nodes) == []
    (line,) = with_nodes(nodes + 1)
    taken = (nodes + 1) * (1 if layout == "ip-optimized" else 8)
    assert f"us-east-1a may need {taken} addresses and has 123" in line


def test_room_is_made_for_the_type_that_takes_most_addresses() -> None:
    def taken(*names: str) -> int:
        one = GpuGroupSettings.model_construct(
            instance_types=list(names), zones=ONE_ZONE, efa="on", efa_layout="bandwidth-optimized"
        )
        return type_rules.addresses_per_node_of(one, SETTINGS)

    assert taken("p5en.48xlarge") == 1
    assert taken("p5en.48xlarge", "p5e.48xlarge") == taken("p5e.48xlarge", "p5en.48xlarge") == 8
