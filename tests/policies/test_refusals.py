"""The validators of recorded inputs: each bad input is refused by exactly its own, every good one by none."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pulumi_policy.proxy import unknown_checking_proxy

from policies.rules.aws_would_refuse import BY_TYPE
from policies.rules.refusals import VALIDATORS, Inputs, NotKnown, together
from tests.policies.bad_inputs import Bad, around, compute
from tests.policies.cases import aws_would_refuse_together
from tests.policies.kit import NOT_YET, RULE_BY_ID, judge

BAD = [*compute.BAD, *around.BAD]


def found(type_: str, inputs: Mapping[str, Any]) -> list[tuple[str, str | NotKnown]]:
    props = Inputs(type_, unknown_checking_proxy(dict(inputs)))
    return [(one.id, finding) for one in BY_TYPE.get(type_, []) for finding in one.find(props)]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.validator}-{bad.says}")
def test_a_bad_input_is_refused_by_its_validator_and_by_no_other(bad: Bad) -> None:
    findings = found(bad.type, bad.inputs)
    assert {id_ for id_, _ in findings} == {bad.validator}
    assert any(bad.says in str(finding) for _, finding in findings), findings


def paths(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    items = (
        value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    )
    for key, inner in items:
        yield from paths(inner, (*at, key))


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: f"{bad.validator}-{bad.says}")
def test_a_value_that_is_not_known_yet_is_never_an_error_and_never_a_new_fault(bad: Bad) -> None:
    for path in paths(bad.inputs):
        if not path:
            continue
        inputs: Any = copy.deepcopy(dict(bad.inputs))
        holder = inputs
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = NOT_YET
        faults = {id_ for id_, finding in found(bad.type, inputs) if not isinstance(finding, NotKnown)}
        assert faults <= {bad.validator}, path


def test_every_validator_has_a_bad_input() -> None:
    assert {bad.validator for bad in BAD} == {validator.id for validator in VALIDATORS}
    assert set(aws_would_refuse_together.REFUSED) == {validator.id for validator in together.VALIDATORS}


@pytest.mark.parametrize("id_", aws_would_refuse_together.REFUSED)
def test_resources_are_refused_together_by_their_validator_and_by_no_other(id_: str) -> None:
    stack, _ = aws_would_refuse_together.REFUSED[id_]
    messages = judge(RULE_BY_ID["aws-would-refuse-together"], stack).messages
    assert messages and all(f"[{id_}]" in message for message in messages)


def test_every_validator_has_a_text_a_fix_and_an_id_of_its_own() -> None:
    every = [*VALIDATORS, *together.VALIDATORS]
    assert all(validator.text.endswith(".") and validator.fix for validator in every)
    assert len({validator.id for validator in every}) == len(every)
