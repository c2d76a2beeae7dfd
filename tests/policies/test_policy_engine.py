"""The policies in the real engine: what they forbid is refused at preview, before anything exists."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from localcloud.aws.server import AwsServer
from localcloud.engine.pulumi import Engine
from localcloud.toolchain import ROOT, Paths
from policies.rules import RULES

UNPINNED = {
    "Pulumi.yaml": "name: unpinned\nruntime: python\n",
    "Pulumi.local.yaml": "config: {aws:region: us-east-1}\n",
    "__main__.py": """
import pulumi_aws as aws

aws.ec2.LaunchTemplate(
    "template",
    image_id="resolve:ssm:/images/pytorch",
    instance_type="g6.xlarge",
    metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1},
    block_device_mappings=[
        {"device_name": "/dev/sda1", "ebs": {"encrypted": "true", "volume_type": "gp3", "volume_size": 100}}
    ],
)
""",
}
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


def test_an_update_refuses_an_image_that_is_not_pinned_before_anything_uses_it(
    tools: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same program, previewed and brought up: the template is not made."""
    (tmp_path / "project").mkdir()
    for name, text in UNPINNED.items():
        (tmp_path / "project" / name).write_text(text)
    config = tmp_path / "pack.json"
    config.write_text(json.dumps({"images-pinned": {"stacks": ["local"]}}))
    options = ["--policy-pack", str(ROOT / "policies"), "--policy-pack-config", str(config)]
    monkeypatch.setattr(Engine, "_policies", lambda self: options)

    work = tmp_path / "work"
    with AwsServer() as aws:
        engine = Engine(
            tools,
            "local",
            work,
            "local",
            project=tmp_path / "project",
            endpoint=aws.endpoint,
            local_root=work,
        )
        looked_at, brought_up = engine.preview(), engine.up()
    assert looked_at.ok, looked_at.text
    assert [(v.policy, v.level) for v in looked_at.events.violations] == [("images-pinned", "advisory")]
    assert not brought_up.ok
    assert [(v.policy, v.level) for v in brought_up.events.violations] == [("images-pinned", "mandatory")]
    assert not any("LaunchTemplate" in step.type for step in brought_up.events.steps)
