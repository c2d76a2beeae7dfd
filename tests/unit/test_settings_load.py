"""A stack file in, settings or all of its faults out."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from components.settings import Settings, SettingsError, load
from components.settings.engine_config import parse
from components.settings.faults import config_path
from components.settings.group_model import GpuGroupSettings
from components.settings.section import Section
from components.settings.shape import sound_part
from tests.unit.stack_files import ROOT, mapping_of, minimal


def faults_of(namespace: dict[str, Any], stack: str = "dev") -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(stack, namespace)
    return [str(fault) for fault in caught.value.faults]


@pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod"])
def test_the_stack_file_loads(stack: str) -> None:
    settings = load(stack, mapping_of(stack))
    assert settings.stack == stack
    assert settings.base_name == f"gputrain-{stack}"


def test_production_declares_a_mixed_an_on_demand_and_a_spot_group() -> None:
    groups = {group.name: group for group in load("prod", mapping_of("prod")).gpu_groups}
    assert groups["h100"].purchase.spot_percent == 0 and groups["h100"].efa == "on"
    assert groups["l4-mixed"].purchase.on_demand_base > 0 and groups["l4-mixed"].purchase.spot_percent > 0
    assert (
        groups["l40s-spot"].purchase.on_demand_base == 0 and groups["l40s-spot"].purchase.spot_percent == 100
    )


def test_the_local_stack_has_one_on_demand_and_one_spot_node() -> None:
    (group,) = load("local", mapping_of("local")).gpu_groups
    assert (group.name, group.desired_nodes) == ("trainers", 2)
    assert (group.purchase.on_demand_base, group.purchase.spot_percent) == (1, 100)


def test_absent_keys_have_the_documented_defaults() -> None:
    settings = load("dev", minimal())
    assert settings.name_prefix == "gputrain"
    assert settings.kms.mode == "aws-managed"
    assert settings.network.nat == "single"
    assert settings.gpu_groups[0].min_nodes == 0
    assert settings.gpu_groups[0].desired_nodes is None
    assert settings.self_check.max_replacements == 3
    assert settings.monitoring.cluster == "none"


def test_seven_faults_of_one_file_are_told_at_once() -> None:
    """Unknown type, EFA without it, two zones with EFA, min above max, CIDR, typo, text for a number."""
    namespace = minimal()
    namespace["network"]["cidr"] = "10.42.0.0/24"
    namespace["gpuGroups"] = [
        {**namespace["gpuGroups"][0], "name": "a", "instanceTypes": ["g6.xlarg"]},
        {**namespace["gpuGroups"][0], "name": "b", "efa": "on", "zones": ["us-east-1a"]},
        {**namespace["gpuGroups"][0], "name": "c", "instanceTypes": ["p5.48xlarge"], "efa": "on"},
        {**namespace["gpuGroups"][0], "name": "d", "minNodes": 5, "maxNodes": 2},
        {**namespace["gpuGroups"][0], "name": "e", "rootVolumeGib": "200", "placment": "none"},
    ]
    assert faults_of(namespace) == [
        "gpu-training:network.cidr: 10.42.0.0/24 is too small for a public and a private subnet in every "
        "zone; "
        "take a /21 or larger, up to /16",
        "gpu-training:gpuGroups[0].instanceTypes[0]: unknown instance type 'g6.xlarg'; one of "
        "g6.xlarge, g6.2xlarge, g6.4xlarge, g6.8xlarge, g6.12xlarge, g6.16xlarge, g6.24xlarge, g6.48xlarge; "
        "`make catalog` lists all (nearest match: g6.xlarge)",
        "gpu-training:gpuGroups[1].efa: on, but g6.xlarge has no EFA; write auto or off; use one of "
        "g6.8xlarge, g6.12xlarge, g6.16xlarge, g6.24xlarge, g6.48xlarge",
        "gpu-training:gpuGroups[2].zones: 2 zones for a group with EFA; name one, such as [us-east-1a]",
        "gpu-training:gpuGroups[3].minNodes: 5 is above maxNodes 2; at most 2, or raise maxNodes",
        "gpu-training:gpuGroups[4].placment: unknown key; known here: "
        f"{', '.join(field.alias or '' for field in GpuGroupSettings.model_fields.values())} "
        "(nearest match: placement)",
        "gpu-training:gpuGroups[4].rootVolumeGib: '200' has the wrong type; write a whole number, without "
        "quotes",
    ]


def test_the_message_counts_the_faults_and_names_the_stack() -> None:
    with pytest.raises(
        SettingsError, match=r"^1 fault in the configuration of stack 'dev':\n  gpu-training:region"
    ):
        load("dev", {**minimal(), "region": "us-eats-1"})


def test_a_misspelt_required_key_is_one_fault() -> None:
    namespace = minimal()
    namespace["gpuGroups"][0]["maxNode"] = namespace["gpuGroups"][0].pop("maxNodes")
    (fault,) = faults_of(namespace)
    assert fault.startswith("gpu-training:gpuGroups[0].maxNode: unknown key;")
    assert fault.endswith("(nearest match: maxNodes)")


def test_the_default_of_a_misspelt_key_is_not_judged() -> None:
    """maxPriceUsdPerHour without spotPercent is a fault, but here spotPercent was given, only misspelt."""
    namespace = minimal()
    namespace["gpuGroups"][0]["purchase"] = {"spotPercnt": 50, "maxPriceUsdPerHour": 2.0}
    (fault,) = faults_of(namespace)
    assert "spotPercnt: unknown key" in fault


def test_pythons_spelling_of_a_key_is_a_typo() -> None:
    namespace = minimal()
    namespace["gpuGroups"][0]["min_nodes"] = 1
    (fault,) = faults_of(namespace)
    assert fault.endswith("(nearest match: minNodes)")


def test_a_broken_field_does_not_keep_the_others_from_being_judged() -> None:
    namespace = minimal()
    namespace["network"] = {"availabilityZones": 3, "cidr": "8.8.0.0/16"}
    namespace["gpuGroups"][0] |= {"maxNodes": None, "efa": "on"}
    found = faults_of(namespace)
    assert [fault.split(":")[1] for fault in found] == [
        "network.availabilityZones",
        "network.cidr",
        "gpuGroups[0].efa",
        "gpuGroups[0].maxNodes",
    ]


def test_a_group_that_is_no_map_keeps_the_places_of_the_others() -> None:
    namespace = minimal()
    namespace["gpuGroups"] = ["trainers", {**namespace["gpuGroups"][0], "instanceTypes": ["g6.xxlarge"]}]
    assert [fault.split(":")[1] for fault in faults_of(namespace)] == [
        "gpuGroups[0]",
        "gpuGroups[1].instanceTypes[0]",
    ]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("region", "us-east", "gpu-training:region: 'us-east' has the wrong form; it must match"),
        (
            "allowedAccountIds",
            [123456789012],
            "gpu-training:allowedAccountIds[0]: 123456789012 has the wrong type; "
            "write text, for example ['123456789012']",
        ),
        ("gpuGroups", [], "gpu-training:gpuGroups: empty; give at least 1"),
        ("tags", {"team": 7}, "gpu-training:tags.team: 7 has the wrong type; write text"),
        ("stack", "prod", "gpu-training:stack: unknown key; remove it: the stack has its name without it"),
        (
            "kms",
            {"mode": "creat"},
            "gpu-training:kms.mode: 'creat' is not known; one of create, existing, "
            "aws-managed (nearest match: create)",
        ),
        (
            "network",
            {"availabilityZones": ["us-east-1a"], "nat": False},
            "gpu-training:network.nat: False is a boolean; write one of none, single, per-az, in quotes",
        ),
        (
            "monitoring",
            {"metricsPort": 80},
            "gpu-training:monitoring.metricsPort: 80 is out of range; must be greater than or equal to 1024",
        ),
        ("network", {}, "gpu-training:network.availabilityZones: missing; add it: Availability zones"),
    ],
)
def test_a_wrong_value_is_told_with_its_remedy(path: str, value: object, expected: str) -> None:
    assert any(fault.startswith(expected) for fault in faults_of({**minimal(), path: value}))


def test_a_missing_stack_file_names_the_four_required_keys() -> None:
    assert [fault.partition(";")[0] for fault in faults_of({})] == [
        "gpu-training:region: missing",
        "gpu-training:allowedAccountIds: missing",
        "gpu-training:network: missing",
        "gpu-training:gpuGroups: missing",
    ]


def test_a_secret_is_neither_in_the_message_nor_in_the_repr() -> None:
    namespace = minimal()
    namespace["monitoring"] = {"cluster": "existing", "kubeconfig": {"token": "s3cr3t"}}
    assert not any("s3cr3t" in fault for fault in faults_of(namespace))
    namespace["monitoring"]["kubeconfig"] = "token: s3cr3t"
    assert "s3cr3t" not in repr(load("dev", namespace))


def test_a_long_value_is_cut_in_the_message() -> None:
    whole, cut = "A" * 58, "A" * 59  # 60 and 61 characters with the quotes
    assert f"'{whole}' has the wrong form" in faults_of({**minimal(), "namePrefix": whole})[0]
    assert f"'{'A' * 56}... has the wrong form" in faults_of({**minimal(), "namePrefix": cut})[0]


def test_a_bug_in_a_rule_is_not_taken_for_a_broken_field(monkeypatch: pytest.MonkeyPatch) -> None:
    def buggy(settings: Settings):
        yield settings.regoin  # type: ignore[attr-defined]

    monkeypatch.setattr("components.settings.rules.RULES", (buggy,))
    with pytest.raises(AttributeError, match="regoin"):
        load("dev", minimal())


def key_paths(
    section: type[Section], value: Any, at: tuple[str | int, ...] = ()
) -> list[tuple[str | int, ...]]:
    """The path of every key of a section in a configuration, at any depth (not the keys of free maps)."""
    paths: list[tuple[str | int, ...]] = []
    for name, field in section.model_fields.items():
        key = field.alias or name
        if key not in value:
            continue
        paths.append((*at, key))
        inner = [value[key]] if isinstance(value[key], dict) else value[key]
        if isinstance(inner, list):
            places = [()] if isinstance(value[key], dict) else [(n,) for n in range(len(inner))]
            arguments = getattr(field.annotation, "__args__", (field.annotation,))
            for sub in arguments:
                if isinstance(sub, type) and issubclass(sub, Section):
                    for place, item in zip(places, inner, strict=True):
                        paths += key_paths(sub, item, (*at, key, *place))
    return paths


FULL = mapping_of("prod")
PATHS = key_paths(Settings, FULL)


@given(path=st.sampled_from(PATHS), data=st.data())
def test_a_typo_in_any_key_at_any_depth_is_found_with_its_nearest_match(
    path: tuple[str | int, ...], data: st.DataObject
) -> None:
    key = str(path[-1])
    place = data.draw(st.integers(0, len(key) - 1))
    typo = key[:place] + data.draw(st.sampled_from("xqz")) + key[place + data.draw(st.integers(0, 1)) :]
    assume(typo != key)
    namespace = copy.deepcopy(FULL)
    holder: Any = namespace
    for step in path[:-1]:
        holder = holder[step]
    holder[typo] = holder.pop(key)

    at = config_path((*path[:-1], typo)) + ":"
    matching = [fault for fault in faults_of(namespace, "prod") if fault.startswith(at)]

    assert len(matching) == 1
    assert ": unknown key; known here: " in matching[0]
    assert matching[0].endswith(f"(nearest match: {key})")


@given(path=st.sampled_from(PATHS), junk=st.sampled_from([None, 3.5, "x", True, [], {}, [[]], {"a": 1}]))
def test_no_value_of_any_kind_in_any_place_makes_the_loader_crash(
    path: tuple[str | int, ...], junk: object
) -> None:
    namespace = copy.deepcopy(FULL)
    holder: Any = namespace
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = junk
    try:
        load("prod", namespace)
    except SettingsError as error:
        assert error.faults


def test_the_sound_part_of_sound_settings_is_all_of_them() -> None:
    namespace = {**FULL, "stack": "prod"}
    assert sound_part(Settings, namespace, set()) == load("prod", FULL)


def test_the_engines_map_of_text_becomes_values() -> None:
    values, faults = parse(
        {
            "gpu-training:region": "us-east-1",
            "gpu-training:namePrefix": "42",  # a name, whatever it looks like
            "gpu-training:permissionBoundaryArn": "",  # the schema's word for absent
            "gpu-training:network": '{"cidr": "10.0.0.0/16"}',
            "gpu-training:datasets": "[]",
            "aws:region": "eu-west-1",
        }
    )
    assert values == {
        "region": "us-east-1",
        "namePrefix": "42",
        "network": {"cidr": "10.0.0.0/16"},
        "datasets": [],
    }
    assert faults == []


def test_a_misspelt_namespace_is_a_fault_among_the_others() -> None:
    values, found = parse({"gpu-trainng:tags": "{}", "gpu-training:region": "us-eats-1"})
    with pytest.raises(SettingsError) as caught:
        load("dev", {**minimal(), **values}, found)
    assert [str(fault) for fault in caught.value.faults] == [
        "gpu-training:region: 'us-eats-1' is no region that offers a GPU instance type of the catalog; "
        "use one that does (nearest match: us-east-1)",
        "gpu-training:tags: set as 'gpu-trainng:tags', which nobody reads; correct the namespace",
    ]


def test_the_schema_of_the_project_has_every_key_with_the_models_default() -> None:
    import yaml

    schema = yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8"))["config"]
    declared = {key: entry for key, entry in schema.items() if ":" not in key}
    fields = {f.alias or name: f for name, f in Settings.model_fields.items() if name != "stack"}
    assert declared.keys() == fields.keys()
    for key, field in fields.items():
        assert declared[key]["description"]
        assert "type" not in declared[key]  # the engine would stop at the first value of another type
        if field.is_required():
            assert declared[key]["default"] in ("", [], {})
        elif declared[key]["default"] != "":
            value = {"stack": "dev", **minimal(), key: declared[key]["default"]}
            without = {k: v for k, v in value.items() if k != key}
            assert Settings.model_validate(value) == Settings.model_validate(without)


def test_the_engine_gets_the_defaults_as_text_and_the_program_reads_them() -> None:
    import yaml

    schema = yaml.safe_load((ROOT / "Pulumi.yaml").read_text("utf-8"))["config"]
    flat = {
        f"gpu-training:{key}": entry["default"]
        if isinstance(entry["default"], str)
        else json.dumps(entry["default"])
        for key, entry in schema.items()
        if ":" not in key
    }
    values, _ = parse(flat)
    assert load("dev", {**values, **minimal()}) == load("dev", minimal())
