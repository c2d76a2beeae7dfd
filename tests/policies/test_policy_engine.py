"""The policies in the real engine: what they forbid is refused at preview, before anything exists."""

from __future__ import annotations

from pathlib import Path

from localcloud.engine.pulumi import Engine
from localcloud.toolchain import Paths
from policies.rules import RULES

PROGRAM = Path(__file__).parent / "violating_program"

ONLY_CONFIGURED = {"cost-ceiling"}  # without a ceiling in the pack's configuration it finds nothing


def test_a_program_that_breaks_every_rule_fails_its_preview_and_is_told_each(
    tools: Paths, tmp_path: Path
) -> None:
    outcome = Engine(tools, "prod", tmp_path, "preview", project=PROGRAM).preview()
    assert outcome.code != 0
    assert outcome.events.errors == ("preview failed",), "the program itself is in order: only policies fail"
    violated = {violation.policy for violation in outcome.events.violations if violation.level == "mandatory"}
    only_advised = {rule.id for rule in RULES if rule.advises_at_preview}
    assert violated == {rule.id for rule in RULES} - only_advised - ONLY_CONFIGURED
    assert only_advised == {"images-pinned"}
    assert any(v.policy == "images-pinned" and v.level == "advisory" for v in outcome.events.violations)
    for rule in RULES:
        # The rules that run many validators tell the validator's own fix.
        told_by_validators = rule.id.startswith("aws-would-refuse")
        assert f"Fix: {rule.fix}" in outcome.text or told_by_validators or rule.id in ONLY_CONFIGURED
    assert "[policy-is-a-document]" in outcome.text and "[subnets-lie-within-their-vpc]" in outcome.text
    assert "correct-horse" not in outcome.text
