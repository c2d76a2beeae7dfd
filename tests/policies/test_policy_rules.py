"""Every rule against its cases: compliant, violating, not applicable, and not known yet."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from policies.rules import RULES
from policies.rules._judge import AnyRule, Outcome
from policies.rules.refusals import VALIDATORS, together
from tests.policies.kit import RULE_BY_ID, Case, Verdict, judge


def cases_of(rule: AnyRule) -> list[Case]:
    return importlib.import_module(f"tests.policies.cases.{rule.id.replace('-', '_')}").CASES


def fixes(rule: AnyRule, verdict: Verdict) -> list[str]:
    """What each message must tell to do: its validator's fix where it names one, else the rule's."""
    by_id = {validator.id: validator.fix for validator in (*VALIDATORS, *together.VALIDATORS)}
    named = [re.search(r" \[([a-z0-9-]+)\]\nFix", message) for message in verdict.messages]
    return [by_id[name[1]] if name else rule.fix for name in named]


ALL = [pytest.param(rule, case, id=f"{rule.id}: {case.what}") for rule in RULES for case in cases_of(rule)]


@pytest.mark.parametrize(("rule", "case"), ALL)
def test_the_rule_judges_as_the_case_says(rule: AnyRule, case: Case) -> None:
    verdict = judge(rule, case.resources, case.config)
    assert verdict.outcome is case.outcome, verdict
    if case.outcome is Outcome.VIOLATION:
        assert case.says in "\n".join(verdict.messages)
        assert all(
            f"\nFix: {fix}" in message
            for message, fix in zip(verdict.messages, fixes(rule, verdict), strict=True)
        )
        assert set(verdict.urns) <= {resource.urn for resource in case.resources}
    if case.outcome is Outcome.UNKNOWN:
        assert verdict.unknown.startswith("unknown until the update: ")
        assert case.says in verdict.unknown


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_is_tried_with_every_outcome(rule: AnyRule) -> None:
    assert {case.outcome for case in cases_of(rule)} == set(Outcome)


def test_every_rule_is_listed_and_lies_in_a_file_of_its_name() -> None:
    folder = Path(importlib.import_module("policies.rules").__path__[0])
    files = {path.stem.replace("_", "-") for path in folder.glob("[a-z]*.py")}
    assert sorted(RULE_BY_ID) == sorted(files)
    assert len(RULE_BY_ID) == len(RULES)


def test_a_secret_never_shows_in_a_message() -> None:
    rule = RULE_BY_ID["no-secrets-in-user-data"]
    secret = "0f" * 20
    case = next(case for case in cases_of(rule) if case.what == "in an instance")
    verdict = judge(rule, case.resources)
    assert secret in str(case.resources[0].props)
    assert verdict.messages and secret not in "\n".join(verdict.messages)
