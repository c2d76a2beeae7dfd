"""Validators as a person meets them: all findings at once, their levels, and leaving one out with a reason."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from components.settings import Settings, SettingsError, advice, load
from components.settings.faults import id_of, level_of
from components.settings.rules import essential_ids
from tests.unit.rule_cases import Case, Changes, configured, group
from tests.unit.stack_files import ROOT

REASON = "TICKET-7: known, and meant"
TABLES = sorted(path.stem for path in (ROOT / "tests" / "unit").glob("test_settings_*rules.py"))


def cases() -> list[Case]:
    """The cases of all rules, from wherever they are tested."""
    modules = [importlib.import_module(f"tests.unit.{name}") for name in TABLES]
    return [case for module in modules for case in getattr(module, "CASES", [])]


def suppressing(changes: Changes, *ids: str) -> dict[str, Any]:
    return {**configured(changes), "suppressValidators": dict.fromkeys(ids, REASON)}


def faults(stack: str, namespace: dict[str, Any]) -> set[str]:
    try:
        load(stack, namespace)
    except SettingsError as error:
        return {fault.validator for fault in error.faults}
    return set()


def test_all_faults_are_told_at_once_with_their_ids() -> None:
    changes = {("region",): "us-east-9", **group(minNodes=3, maxNodes=2, instanceTypes=["p5.48xlrge"])}
    with pytest.raises(SettingsError) as caught:
        load("dev", configured(changes))
    text = str(caught.value)
    for id_ in ("region-is-known", "min-is-not-above-max", "instance-types-are-known"):
        assert f"[{id_}]" in text
    assert text.count("\n") >= 3


ERRORS = [case for case in cases() if level_of(case.rule) == "error"]


@pytest.mark.parametrize("case", ERRORS, ids=lambda case: f"{id_of(case.rule)}-{ERRORS.index(case)}")
def test_an_error_is_left_out_by_its_id_unless_nothing_can_be_planned_without_it(case: Case) -> None:
    id_ = id_of(case.rule)
    assert id_ in faults(case.stack, configured(case.refused))
    left = faults(case.stack, suppressing(case.refused, id_))
    if id_ in essential_ids():
        assert {id_, "suppressions-have-an-id-and-a-reason"} <= left
    else:
        assert id_ not in left


def told(settings: Settings) -> list[tuple[str, str]]:
    return [(finding.level, finding.told) for finding in advice(settings)]


def test_a_suppressed_validator_shows_as_an_info_with_its_reason() -> None:
    changes = group(minNodes=3, maxNodes=2)
    settings = load("dev", suppressing(changes, "min-is-not-above-max"))
    assert (
        "info",
        f"gpu-training:suppressValidators.min-is-not-above-max: suppressed; {REASON} [min-is-not-above-max]",
    ) in told(settings)


def test_a_suppressed_warning_is_not_told_but_its_reason_is() -> None:
    zones = [f"us-east-1{letter}" for letter in "abcdef"]
    changes: Changes = {("network",): {"availabilityZones": zones, "nat": "per-az"}}
    own = "[other-quotas-hold-the-stack]"
    [(level, line)] = [one for one in told(load("dev", configured(changes))) if own in one[1]]
    assert level == "warning"
    [(level, line)] = [
        one for one in told(load("dev", suppressing(changes, "other-quotas-hold-the-stack"))) if own in one[1]
    ]
    assert level == "info" and REASON in line


@pytest.mark.parametrize(
    ("id_", "reason", "says"),
    [
        ("min-is-not-above-maximum", REASON, "no such validator"),
        ("min-is-not-above-max", "  why?  ", "no reason is given"),
        ("instance-types-are-known", REASON, "cannot be suppressed"),
    ],
)
def test_a_suppression_that_does_not_hold_is_a_fault(id_: str, reason: str, says: str) -> None:
    with pytest.raises(SettingsError, match=says):
        load("dev", {**configured({}), "suppressValidators": {id_: reason}})


def test_warnings_and_infos_stop_nothing() -> None:
    zones = [f"us-east-1{letter}" for letter in "abcdef"]
    settings = load("dev", configured({("network",): {"availabilityZones": zones, "nat": "per-az"}}))
    assert {level for level, _ in told(settings)} == {"warning", "info"}
