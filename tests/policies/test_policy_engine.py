"""The policies in the real engine: what they forbid is refused at preview, before anything exists."""

from __future__ import annotations

from pathlib import Path

from localcloud.engine.pulumi import Engine
from localcloud.toolchain import Paths
from policies.rules import RULES

PROGRAM = Path(__file__).parent / "violating_program"


def test_a_program_that_breaks_every_rule_fails_its_preview_and_is_told_each(
    tools: Paths, tmp_path: Path
) -> None:
    outcome = Engine(tools, "bad", tmp_path, "preview", project=PROGRAM).preview()
    assert outcome.code != 0
    assert outcome.events.errors == ("preview failed",), "the program itself is in order: only policies fail"
    violated = {violation.policy for violation in outcome.events.violations if violation.level == "mandatory"}
    assert violated == {rule.id for rule in RULES}
    for rule in RULES:
        assert f"Fix: {rule.fix}" in outcome.text
    assert "correct-horse" not in outcome.text
