"""What validators find that is no error, before the real engine: printed at preview, and it stops nothing."""

from __future__ import annotations

import pytest

from localcloud.engine.pulumi import Engine, Outcome
from localcloud.toolchain import Paths
from tests.unit.small_release import small_release

# Six NAT gateways take more addresses than AWS gives by default; the reason of what was left out is told as well.
STACK = """
config:
  gpu-training:region: us-east-1
  gpu-training:allowedAccountIds: ["123456789012"]
  gpu-training:network:
    availabilityZones: [us-east-1a, us-east-1b, us-east-1c, us-east-1d, us-east-1e, us-east-1f]
    nat: per-az
  gpu-training:gpuGroups:
    - name: trainers
      instanceTypes: [g6.xlarge]
      zones: [us-east-1a]
      minNodes: 2
      maxNodes: 4
      desiredNodes: 1
      efa: "off"
      image: {profile: local, amiId: ami-0123456789abcdef0}
  gpu-training:suppressValidators:
    desired-is-within-bounds: "TICKET-7: set by hand before the first run"
"""


@pytest.fixture(scope="module")
def told(tools: Paths, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("told")
    path = folder / "Pulumi.told.yaml"
    path.write_text(STACK)
    env = {"GPU_TRAINING_RELEASE": str(small_release(folder))}
    return Engine(tools, "told", folder / "work", "preview", stack_file=path, extra_env=env).preview()


def test_a_warning_is_printed_with_what_to_do_and_its_id(told: Outcome) -> None:
    assert (
        "warning: gpu-training:network.nat: EC2-VPC Elastic IPs L-0263D0A3: 6 addresses at maxNodes; the documented "
        "default is 5; ask AWS for more first, in Service Quotas [other-quotas-hold-the-stack]"
    ) in told.text


def test_an_info_is_printed(told: Outcome) -> None:
    line = (
        "Running On-Demand G and VT instances L-DB2E81BA: 16 vCPUs at maxNodes; the documented default is 0"
    )
    assert line in told.text


def test_what_was_suppressed_is_printed_with_its_reason(told: Outcome) -> None:
    assert (
        "gpu-training:suppressValidators.desired-is-within-bounds: suppressed; TICKET-7: set by hand before the "
        "first run [desired-is-within-bounds]"
    ) in told.text


def test_none_of_it_is_an_error_and_the_suppressed_fault_meets_the_policies(told: Outcome) -> None:
    """The settings' validator was left out; what AWS would refuse is still refused, by its own validator."""
    assert "Traceback" not in told.text
    assert told.events.errors == ("preview failed",)
    assert {violation.policy for violation in told.events.violations} == {"aws-would-refuse"}
    assert "desiredCapacity: 1 is below minSize 2 [group-sizes-are-ordered]" in told.text
