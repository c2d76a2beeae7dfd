"""EC2's power calls in the local cloud: reboots are counted, addresses and names stay, the dead stay dead."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from botocore.exceptions import ClientError

from localcloud.aws.power import REBOOTS_TAG
from localcloud.aws.server import AwsServer
from localcloud.nodes import cloud
from localcloud.nodes.names import private_name
from tests.local.cloud_kit import Cluster

names = (f"power-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def aws() -> Any:
    with AwsServer(tick_seconds=0.05) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(aws: AwsServer) -> Cluster:
    return Cluster(aws.endpoint)


@pytest.fixture
def instance(cluster: Cluster) -> str:
    """One that no health check of its group takes away while it is stopped."""
    group = next(names)
    cluster.group(group, 1)
    (found,) = cluster.states(group)
    cluster.autoscaling.suspend_processes(
        AutoScalingGroupName=group, ScalingProcesses=["HealthCheck", "ReplaceUnhealthy"]
    )
    return found


def reboots(cluster: Cluster, instance_id: str) -> str | None:
    return {tag["Key"]: tag["Value"] for tag in cluster.instance(instance_id)["Tags"]}.get(REBOOTS_TAG)


def test_the_node_driver_reads_the_tag_that_is_written_here() -> None:
    assert cloud.REBOOTS_TAG == REBOOTS_TAG == "gpu-training:reboots"


def test_each_reboot_counts_up_on_the_instance_which_goes_on_running(cluster: Cluster, instance: str) -> None:
    assert reboots(cluster, instance) is None
    for count in ("1", "2", "3"):
        cluster.ec2.reboot_instances(InstanceIds=[instance])
        assert reboots(cluster, instance) == count
    assert cluster.ec2_state(instance) == "running"


def test_a_stopped_instance_is_not_rebooted_and_none_of_the_call_is(cluster: Cluster, instance: str) -> None:
    group = next(names)
    cluster.group(group, 1)
    (other,) = cluster.states(group)
    cluster.ec2.stop_instances(InstanceIds=[instance])
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        cluster.ec2.reboot_instances(InstanceIds=[other, instance])
    assert (reboots(cluster, other), reboots(cluster, instance)) == (None, None)


def test_stop_and_start_keep_address_name_and_group(cluster: Cluster, instance: str) -> None:
    kept = ("InstanceId", "PrivateIpAddress", "PrivateDnsName", "SubnetId", "Tags")
    before = cluster.instance(instance)
    cluster.ec2.stop_instances(InstanceIds=[instance])
    stopped = cluster.instance(instance)
    assert stopped["State"]["Name"] == "stopped"
    cluster.ec2.start_instances(InstanceIds=[instance])
    after = cluster.instance(instance)
    assert after["State"]["Name"] == "running"
    for key in kept:
        assert before[key] == stopped[key] == after[key]


@pytest.mark.parametrize("call", ["start_instances", "stop_instances", "reboot_instances"])
def test_the_terminated_stay_terminated(cluster: Cluster, instance: str, call: str) -> None:
    cluster.ec2.terminate_instances(InstanceIds=[instance])
    with pytest.raises(ClientError, match="IncorrectInstanceState"):
        getattr(cluster.ec2, call)(InstanceIds=[instance])
    assert cluster.ec2_state(instance) == "terminated"


def test_a_stopped_instance_of_a_group_is_replaced(cluster: Cluster) -> None:
    group = next(names)
    cluster.group(group, 1)
    (found,) = cluster.states(group)
    cluster.ec2.stop_instances(InstanceIds=[found])
    cluster.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    (other,) = cluster.states(group)
    assert other != found
    assert cluster.ec2_state(found) == "terminated"


@pytest.mark.parametrize("region", ["us-east-1", "eu-west-1"])
def test_private_names_are_those_of_the_metadata(aws: AwsServer, region: str) -> None:
    cluster, group = Cluster(aws.endpoint, region=region), next(names)
    cluster.group(group, 1)
    (found,) = cluster.states(group)
    description = cluster.instance(found)
    assert description["PrivateDnsName"] == private_name(description["PrivateIpAddress"], region)
