"""The stand-in AWS provider under the real engine: previews, changes and refusals as the official plugin shows them.

A small program lives one life: previewed, brought up, previewed again, changed, destroyed. The tests read its record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import pytest
from pulumi.runtime import rpc

from localcloud.aws.server import AwsServer
from localcloud.engine.events import Step
from localcloud.engine.pulumi import Engine, Outcome
from localcloud.toolchain import Paths

PROGRAM = """
import pulumi
import pulumi_aws as aws

config = pulumi.Config()
provider = aws.Provider("aws", region="eu-west-1", allowed_account_ids=["123456789012"],
                        default_tags={"tags": {"team": "x"}})
opts = pulumi.ResourceOptions(provider=provider)
network = config.require("network")
vpc = aws.ec2.Vpc("vpc", cidr_block=f"{network}.0.0/16", opts=opts)
subnet = aws.ec2.Subnet("subnet", vpc_id=vpc.id, cidr_block=f"{network}.0.0/20", opts=opts)
template = aws.ec2.LaunchTemplate("template", image_id=config.require("image"), instance_type="g6.xlarge", opts=opts)
group = aws.autoscaling.Group("group", name="nodes", min_size=0, max_size=1, vpc_zone_identifiers=[subnet.id],
                              launch_template={"id": template.id, "version": template.latest_version.apply(str)},
                              opts=opts)
secret = aws.ssm.Parameter("secret", type="String", value=pulumi.Output.secret("canary-7f3a"), opts=opts)
pulumi.export("templateName", template.name)
pulumi.export("templateVersion", template.latest_version)
pulumi.export("vpcArn", vpc.arn)
pulumi.export("tagsAll", vpc.tags_all)
"""


@dataclass
class Life:
    """What happened, by the name of the stage."""

    endpoint: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    state: dict[str, Any] = field(default_factory=dict)

    def step(self, stage: str, name: str) -> Step:
        """The engine's step for a resource; a replacement is shown by the one of its steps that replaces."""
        steps = [step for step in self.outcomes[stage].events.steps if step.urn.endswith(f"::{name}")]
        return next((step for step in steps if step.op == "replace"), steps[0])


def write(project: Path, stack: str, network: str, image: str) -> None:
    (project / "Pulumi.yaml").write_text("name: probe\nruntime: python\n")
    (project / "__main__.py").write_text(PROGRAM)
    config = f"config:\n  probe:network: '{network}'\n  probe:image: {image}\n"
    (project / f"Pulumi.{stack}.yaml").write_text(config)


def engine(tools: Paths, folder: Path, stack: str, endpoint: str, **more: Any) -> Engine:
    project = folder / "program"
    project.mkdir(exist_ok=True)
    options: dict[str, Any] = {"mode": "local", "endpoint": endpoint, "policy_pack": None, **more}
    return Engine(tools, stack, folder / "work", project=project, **options)


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    with AwsServer() as server:
        yield server


@pytest.fixture(scope="module")
def life(tools: Paths, aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Life:
    folder = tmp_path_factory.mktemp("life")
    pulumi, lived = engine(tools, folder, "local", aws.endpoint), Life(aws.endpoint)

    def stage(name: str, outcome: Outcome) -> None:
        assert outcome.ok, f"{name}: {outcome.text[-2000:]}"
        lived.outcomes[name] = outcome

    write(pulumi.project, "local", "10.1", "ami-11111111")
    stage("first preview", pulumi.preview())
    stage("up", pulumi.up())
    lived.outputs["up"], lived.state = pulumi.outputs(), pulumi.stack_export()
    stage("second preview", pulumi.preview(expect_no_changes=True))
    write(pulumi.project, "local", "10.2", "ami-22222222")
    stage("changed preview", pulumi.preview(diff=True))
    stage("changed up", pulumi.up())
    lived.outputs["changed up"] = pulumi.outputs()
    stage("destroy", pulumi.destroy())
    return lived


def test_output_only_values_are_unknown_at_preview(life: Life) -> None:
    shown = life.outcomes["first preview"].events.outputs
    unknown = {name for name, value in shown.items() if value == rpc.UNKNOWN}
    assert unknown == {"templateName", "templateVersion", "vpcArn"}
    assert shown["tagsAll"] == {"team": "x"}, "what the program itself says is known"


def test_output_only_values_are_right_at_up(life: Life) -> None:
    outputs = life.outputs["up"]
    assert outputs["templateVersion"] == 1
    assert outputs["templateName"].startswith("template-")
    assert outputs["vpcArn"].startswith("arn:aws:ec2:eu-west-1:123456789012:vpc/vpc-")


def test_the_second_preview_is_empty(life: Life) -> None:
    assert set(life.outcomes["second preview"].events.changes) == {"same"}


def test_a_changed_vpc_cidr_shows_as_replace_with_all_that_hangs_on_it(life: Life) -> None:
    vpc, subnet = (life.step("changed preview", name) for name in ("vpc", "subnet"))
    assert (vpc.op, vpc.keys) == ("replace", ("cidrBlock",))
    assert (subnet.op, set(subnet.keys)) == ("replace", {"cidrBlock", "vpcId"})
    assert life.step("changed preview", "group").op == "update"


def test_a_changed_template_makes_its_next_version_unknown_and_then_one_higher(life: Life) -> None:
    template, group = (life.step("changed preview", name) for name in ("template", "group"))
    assert (template.op, template.diffs) == ("update", ("imageId",))
    assert "launchTemplate" in group.diffs, "the group follows the version"
    assert life.outcomes["changed preview"].events.outputs["templateVersion"] == rpc.UNKNOWN
    assert life.outputs["changed up"]["templateVersion"] == 2


def test_a_secret_never_reaches_the_state_in_the_clear(life: Life) -> None:
    assert "canary-7f3a" not in str(life.state)
    assert all("canary-7f3a" not in outcome.text for outcome in life.outcomes.values())


def test_the_use_of_the_stand_in_is_said_once_an_operation(life: Life) -> None:
    said = "stand-in aws provider: nothing is created on a cloud"
    for outcome in life.outcomes.values():
        diagnostics = (
            outcome.text[outcome.text.rindex("Diagnostics:") :]
            if "Diagnostics:" in outcome.text
            else outcome.text
        )
        assert diagnostics.count(said) == 1


def test_destroy_leaves_the_emulation_empty(life: Life) -> None:
    def client(service: str) -> Any:
        keys = {"aws_access_key_id": "any", "aws_secret_access_key": "any"}
        return boto3.client(service, endpoint_url=life.endpoint, region_name="eu-west-1", **keys)

    assert [vpc for vpc in client("ec2").describe_vpcs()["Vpcs"] if not vpc["IsDefault"]] == []
    assert client("ec2").describe_launch_templates()["LaunchTemplates"] == []
    assert client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"] == []
    assert client("ssm").describe_parameters()["Parameters"] == []


def refused(outcome: Outcome, pulumi: Engine, said: str) -> None:
    assert not outcome.ok
    assert said in outcome.text
    assert "Traceback" not in outcome.text
    resources = pulumi.stack_export()["deployment"].get("resources", [])
    assert [entry["type"] for entry in resources if not entry["type"].startswith("pulumi:")] == []


def test_up_of_another_stack_fails_before_the_first_resource(
    tools: Paths, aws: AwsServer, tmp_path: Path
) -> None:
    pulumi = engine(tools, tmp_path, "prod", aws.endpoint)
    write(pulumi.project, "prod", "10.1", "ami-11111111")
    refused(pulumi.up(), pulumi, "the stand-in provider realises only the stack local, and this is prod")


def test_up_in_preview_mode_creates_nothing(tools: Paths, tmp_path: Path) -> None:
    pulumi = engine(tools, tmp_path, "prod", "", mode="preview")
    write(pulumi.project, "prod", "10.1", "ami-11111111")
    assert pulumi.preview().ok
    refused(pulumi.up(), pulumi, "the stand-in provider was started for previews")


def test_an_address_that_is_not_on_this_machine_is_refused(tools: Paths, tmp_path: Path) -> None:
    pulumi = engine(tools, tmp_path, "local", "https://ec2.eu-west-1.amazonaws.com")
    write(pulumi.project, "local", "10.1", "ami-11111111")
    refused(pulumi.up(), pulumi, "is not on a loopback address")
