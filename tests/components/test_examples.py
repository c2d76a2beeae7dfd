"""The example stack files: each loads without a fault, declares a sound stack, and complies with every policy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from components.settings import load
from policies.rules import RULES
from policies.rules._judge import AnyRule, Outcome
from tests.components.kit import Recording, record_program
from tests.policies.kit import R, judge
from tests.unit.small_release import small_release
from tests.unit.stack_files import ROOT

EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.yaml"))


@pytest.fixture(autouse=True)
def release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torch in it, as `make release TORCH=cp312` puts it there."""
    monkeypatch.setenv("GPU_TRAINING_RELEASE", str(small_release(tmp_path)))


def configuration(example: str) -> dict[str, Any]:
    config = yaml.safe_load((ROOT / "examples" / f"{example}.yaml").read_text("utf-8"))["config"]
    return {key.removeprefix("gpu-training:"): value for key, value in config.items()}


@cache  # a recording is only read
def program(example: str) -> Recording:
    """As at the update, when all values are known: nothing is left unjudged."""
    return record_program(example, configuration(example), preview=False)


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_declares_a_sound_stack_for_its_groups(example: str) -> None:
    settings = load(example, configuration(example))
    program(example).assert_sound()
    groups = program(example).of_type("aws:autoscaling/group:Group")
    assert len(groups) == len(settings.gpu_groups)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_violates_no_policy(example: str, rule: AnyRule) -> None:
    resources = [
        R(
            resource.type,
            resource.inputs,
            resource.urn,
            {key: list(links.urns) for key, links in resource.request.propertyDependencies.items()},
        )
        for resource in program(example).custom()
    ]
    found = judge(rule, resources)
    assert found.outcome is not Outcome.VIOLATION, found


def test_every_example_is_in_the_table() -> None:
    table = (ROOT / "examples" / "README.md").read_text("utf-8")
    assert all(f"({example}.yaml)" in table for example in EXAMPLES)
