"""A stack file full of mistakes, before the real engine: one preview lists them all, and nothing is registered."""

from __future__ import annotations

from pathlib import Path

import pytest

from localcloud.engine.pulumi import Engine, Outcome
from localcloud.toolchain import paths

SEVEN = """
config:
  gpu-training:region: us-east-1
  gpu-training:allowedAccountIds: ["123456789012"]
  gpu-training:network:
    cidr: 10.42.0.0/24
    availabilityZones: [us-east-1a, us-east-1b]
  gpu-training:gpuGroups:
    - name: trainers
      instanceTypes: [g6.xlarg]
      minNodes: 5
      maxNodes: 2
      image: {profile: local, amiId: ami-0123456789abcdef0}
    - name: close
      instanceTypes: [p5.48xlarge]
      maxNodes: 2
      efa: "on"
      rootVolumGib: 300
      image: {profile: local, amiId: ami-0123456789abcdef0}
    - name: far
      instanceTypes: [g6.xlarge]
      zones: [us-east-1b]
      maxNodes: "2"
      efa: on
      image: {profile: local, amiId: ami-0123456789abcdef0}
"""

# Path, fault and nearest match of each, and the validator that found it where one did.
LINES = [
    "7 faults in the configuration of stack 'bad':",
    "gpu-training:network.cidr: 10.42.0.0/24 is too small for a public and a private subnet in every zone; "
    "take a /21 or larger, up to /16 [cidr-is-a-private-block]",
    "gpu-training:gpuGroups[0].instanceTypes[0]: unknown instance type 'g6.xlarg'; ",
    "(nearest match: g6.xlarge) [instance-types-are-known]",
    "gpu-training:gpuGroups[0].minNodes: 5 is above maxNodes 2; at most 2, or raise maxNodes [min-is-not-above-max]",
    "gpu-training:gpuGroups[1].rootVolumGib: unknown key; known here: name, instanceTypes, ",
    "(nearest match: rootVolumeGib)",
    "gpu-training:gpuGroups[1].zones: 2 zones for a group with EFA; name one, such as [us-east-1a] [efa-has-one-zone]",
    "gpu-training:gpuGroups[2].efa: on, but g6.xlarge has no EFA; ",
    "[efa-has-types-that-carry-it]",
    "gpu-training:gpuGroups[2].maxNodes: '2' has the wrong type; write a whole number, without quotes, for example 4",
]


def preview(tmp_path: Path, stack_file: str) -> Outcome:
    path = tmp_path / "Pulumi.bad.yaml"
    path.write_text(stack_file)
    return Engine(paths(), "bad", tmp_path / "work", "preview", stack_file=path).preview()


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return preview(tmp_path_factory.mktemp("seven"), SEVEN)


def test_one_preview_lists_all_seven_faults(seven: Outcome) -> None:
    for line in LINES:
        assert line in seven.text, f"{line}\nis not in\n{seven.text}"


def test_the_preview_fails(seven: Outcome) -> None:
    assert seven.code != 0


def test_a_persons_mistake_shows_no_trace(seven: Outcome) -> None:
    assert "Traceback" not in seven.text
    assert ".py" not in seven.text


def test_no_resource_was_registered(seven: Outcome) -> None:
    assert {step.type for step in seven.events.steps} <= {"pulumi:pulumi:Stack"}


def test_top_level_values_of_a_wrong_type_reach_the_same_list(tmp_path: Path) -> None:
    """The engine itself would stop at the first of them, were they typed in Pulumi.yaml."""
    text = preview(
        tmp_path,
        "config: {gpu-training:region: us-east-1, gpu-training:gpuGroups: none, gpu-training:kms: 3, "
        "gpu-training:monitring: {}}",
    ).text
    for line in (
        "gpu-training:allowedAccountIds: empty; give at least 1",
        "gpu-training:kms: '3' has the wrong type; write a map of keys and values",
        "gpu-training:network.availabilityZones: missing; add it",
        "gpu-training:gpuGroups: 'none' has the wrong type; write a list",
        "gpu-training:monitring: unknown key; known here: region",
    ):
        assert line in text
