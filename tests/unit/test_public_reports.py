"""Each public report of the log, A to E, that can be seen before creation: refused, or built right."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from components.settings import SettingsError, advice, load
from policies.rules import RULES
from tests.components.kit import Recording, record_program
from tests.policies.kit import judge
from tests.unit.public_reports import ELSEWHERE, NOT_SEEN, REFUSED, ROWS, Built, Elsewhere, Refused
from tests.unit.public_reports_built import BUILT, FLEET
from tests.unit.rule_cases import configured
from tests.unit.small_release import small_release
from tests.unit.stack_files import ROOT


@pytest.fixture(autouse=True)
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_TRAINING_RELEASE", str(small_release(tmp_path)))


@cache  # a recording is only read
def program() -> Recording:
    return record_program("test", FLEET)


def findings(bad: Refused) -> set[str]:
    """The ids of what speaks up, be it a rule of the settings, a validator of resources or a whole policy."""
    if isinstance(bad.bad, list):
        verdicts = {rule.id: judge(rule, bad.bad).messages for rule in RULES}
        by_validator = {bad.by for messages in verdicts.values() for m in messages if f"[{bad.by}]" in m}
        return by_validator | {id_ for id_, messages in verdicts.items() if messages}
    try:
        return {finding.validator for finding in advice(load("dev", configured(bad.bad)))}
    except SettingsError as error:
        return {fault.validator for fault in error.faults}


@pytest.mark.parametrize("bad", REFUSED, ids=lambda bad: f"{bad.row}-{bad.report}")
def test_the_input_of_the_report_is_refused(bad: Refused) -> None:
    assert bad.by in findings(bad)


@pytest.mark.parametrize("built", BUILT, ids=lambda built: f"{built.row}-{built.report}")
def test_the_right_thing_is_built(built: Built) -> None:
    assert built.holds(program()), built.right


@pytest.mark.parametrize("shown", ELSEWHERE, ids=lambda shown: f"{shown.row}-{shown.report}")
def test_what_happens_on_nodes_has_its_test(shown: Elsewhere) -> None:
    assert shown.test in (ROOT / shown.file).read_text("utf-8")


def test_every_row_of_the_log_is_in_a_table() -> None:
    log = {f"{part}{number}" for part, numbers in ROWS.items() for number in numbers}
    told = [row.row for table in (REFUSED, BUILT, ELSEWHERE) for row in table]
    assert {*told, *NOT_SEEN} == log
    assert not set(told) & NOT_SEEN.keys()
    assert all(len(reason) > 5 for reason in NOT_SEEN.values())
