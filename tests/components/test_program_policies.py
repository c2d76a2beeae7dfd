"""The whole program with each committed stack file, judged by the policy pack as a preview would judge it.

Ids that AWS gives are unknown here, as they are at a first preview: a rule that could only judge at `up`
would show.
"""

from __future__ import annotations

from functools import cache

import pytest

from policies.rules import RULES
from policies.rules._judge import AnyRule, Outcome
from tests.components.kit import record_program, record_stack
from tests.policies.kit import R, Verdict, judge
from tests.unit.stack_files import mapping_of

# What cannot be known before the update: policies that name the ARN of a key which the stack itself makes.
UNKNOWN_AT_PREVIEW = {("staging", "iam-no-star-star"), ("prod", "iam-no-star-star")}


@cache  # rules only read
def resources(stack: str, preview: bool) -> list[R]:
    """The program's registrations as the engine hands them to rules, named by their URNs."""
    recording = record_program(stack, mapping_of(stack), preview) if preview else record_stack(stack)
    return [
        R(
            resource.type,
            resource.inputs,
            resource.urn,
            {key: list(links.urns) for key, links in resource.request.propertyDependencies.items()},
        )
        for resource in recording.custom()
    ]


def verdict(rule: AnyRule, stack: str, preview: bool) -> Verdict:
    return judge(rule, resources(stack, preview))


@pytest.mark.parametrize("stack", ["local", "dev", "staging", "prod"])
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_stack_complies_already_at_preview(rule: AnyRule, stack: str) -> None:
    found = verdict(rule, stack, preview=True)
    expected = Outcome.UNKNOWN if (stack, rule.id) in UNKNOWN_AT_PREVIEW else Outcome.COMPLIANT
    assert found.outcome is expected, found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_nothing_is_left_unknown_at_the_update(rule: AnyRule) -> None:
    found = verdict(rule, "prod", preview=False)
    assert found.outcome is Outcome.COMPLIANT, found
