"""The tables against the SDK itself: every row describes a type that exists, with the properties it has."""

from __future__ import annotations

import importlib
import keyword
import re
import string
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.provider.kinds import Kind, Maker, Place
from localcloud.provider.realise import REALISERS
from localcloud.provider.tables import AWS
from localcloud.provider.tables.build import index, row
from localcloud.provider.tables.kubernetes import KUBERNETES, kubernetes_kind

ROOT = Path(__file__).parents[2]
PLACE = Place(region="eu-west-1", account="123456789012")


def sdk(type_: str) -> tuple[set[str], set[str]]:
    """Input properties and output-only properties of a type, by the wire's names."""
    package, middle, name = type_.split(":")
    folder = middle.split("/")[0] if package == "aws" else middle.replace("helm.sh", "helm").replace("/", ".")
    folder = f"{folder}_" if keyword.iskeyword(folder) else folder  # aws:lambda is pulumi_aws.lambda_
    resource = getattr(importlib.import_module(f"pulumi_{package}.{folder}"), name)
    module = sys.modules[resource.__module__]
    # Where a nested type has taken the name already, the SDK calls the constructor's arguments InitArgs.
    arguments = getattr(module, f"{name}InitArgs", None) or getattr(module, f"{name}Args")
    inputs = set(_properties(arguments))
    return inputs, set(_properties(resource)) - inputs


def _properties(cls: type) -> Iterator[str]:
    for value in vars(cls).values():
        if isinstance(value, property) and hasattr(value.fget, "_pulumi_name"):
            yield value.fget._pulumi_name  # type: ignore[union-attr]


ROWS = [pytest.param(kind, id=kind.type) for kind in (*AWS.values(), *KUBERNETES.values())]


@pytest.mark.parametrize("kind", ROWS)
def test_output_only_properties_are_exactly_the_sdks(kind: Kind) -> None:
    _, outputs = sdk(kind.type)
    assert set(kind.outputs) == outputs - {"tagsAll"}
    assert kind.taggable == ("tagsAll" in outputs)


@pytest.mark.parametrize("kind", ROWS)
def test_rules_name_properties_that_exist(kind: Kind) -> None:
    inputs, _ = sdk(kind.type)
    assert set(kind.filled) <= inputs
    assert kind.replace <= inputs
    assert kind.exclusive <= inputs
    assert {kind.name} - {None} <= inputs
    assert kind.regional == ("region" in inputs)
    assert set(kind.moves) <= {*kind.outputs, *kind.filled}
    assert {name for harmless in kind.moves.values() for name in harmless} <= inputs
    assert set(kind.moves_only_with) <= set(kind.moves)
    assert set(kind.moves_only_with.values()) <= inputs


def test_a_file_system_is_raised_to_another_lustre_version_in_place() -> None:
    """pulumi_aws 7.51.1, LustreFileSystem: only a lower version replaces it."""
    kind = AWS["aws:fsx/lustreFileSystem:LustreFileSystem"]
    assert not kind.forces_replacement("fileSystemTypeVersion", "update")
    assert kind.forces_replacement("efaEnabled", "update")


@pytest.mark.parametrize("kind", ROWS)
def test_every_form_can_be_filled_and_leaves_no_field_open(kind: Kind) -> None:
    maker = Maker(kind, "urn:pulumi:s::p::t::logical", {}, PLACE, id="the-id")
    for form in (kind.id, *kind.outputs.values(), *kind.filled.values()):
        value = maker.value(form)
        if isinstance(value, str):
            assert not set(value) & {"{", "}"}
            assert not list(string.Formatter().parse(value))[1:]


def test_what_is_realised_is_what_the_tables_say() -> None:
    assert {type_ for type_, kind in AWS.items() if kind.held == "realised"} == set(REALISERS)


def test_a_type_described_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="two rows for a:b:C"):
        index((row("a:b:C", "1"), row("a:b:C", "2")))


def test_any_kubernetes_object_is_replaced_when_its_identity_changes() -> None:
    kind = kubernetes_kind("kubernetes:core/v1:Namespace")
    assert kind.forces_replacement("metadata.name", "update")
    assert not kind.forces_replacement("metadata.labels.a", "update")


@pytest.mark.parametrize(
    ("type_", "pattern"),
    [
        ("aws:ec2/vpc:Vpc", r"vpc-[0-9a-f]{17}"),
        ("aws:ec2/launchTemplate:LaunchTemplate", r"lt-[0-9a-f]{17}"),
        ("aws:sns/topic:Topic", r"arn:aws:sns:eu-west-1:123456789012:logical-[0-9a-f]{7}"),
        ("aws:iam/role:Role", r"logical-[0-9a-f]{7}"),
        ("aws:kms/key:Key", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
    ],
)
def test_ids_have_awss_own_form_and_are_always_the_same(type_: str, pattern: str) -> None:
    kind = AWS[type_]
    first, second = (Maker(kind, "urn:pulumi:s::p::t::logical", {"a": 1}, PLACE).value(kind.id) for _ in "12")
    other = Maker(kind, "urn:pulumi:s::p::t::logical", {"a": 2}, PLACE).value(kind.id)
    assert first == second != other
    assert re.fullmatch(pattern, first)


def test_every_aws_resource_of_the_program_has_a_row() -> None:
    described = {(type_.split(":")[1].split("/")[0], type_.split(":")[2]) for type_ in AWS}
    sources = [ROOT / "__main__.py", *(ROOT / "components").rglob("*.py")]
    used = {
        found for source in sources for found in re.findall(r"\baws\.(\w+)\.([A-Z]\w+)\(", source.read_text())
    }
    resources = {(module.rstrip("_"), name) for module, name in used if not name.endswith("Args")}
    assert resources
    assert resources <= described
