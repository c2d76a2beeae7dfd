"""Nodes from launch to end against the local AWS API and the real metadata mock; a stub is the agent."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcloud.daemons import MARKER
from localcloud.nodes import control
from localcloud.nodes.cloud import ADDRESS_TAG, Cloud
from localcloud.nodes.service import AnotherDriver, Service, lock
from tests.local.cloud_kit import REGION
from tests.local.node_kit import NOTICE_SECONDS, World, alive, stub_group, stub_world


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with stub_world(tmp_path_factory) as found:
        yield found


def test_a_node_boots_from_the_user_data_of_its_template(world: World) -> None:
    group = stub_group(world, "boot", "serve")
    (instance_id,) = world.in_service(group)
    record = world.record(instance_id)
    assert record["state"] == "running"
    assert [step["step"].partition(",")[0] for step in record["steps"]] == [
        "install the stub",
        "agent started",
    ]
    assert record["bootSeconds"] == record["steps"][-1]["seconds"]
    assert record["address"].startswith("127.")
    assert record["launchTemplate"] == {"id": world.clusters[group].template, "version": "1"}
    (reservation,) = world.clusters[group].ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    assert {"Key": ADDRESS_TAG, "Value": record["address"]} in reservation["Instances"][0]["Tags"]


def test_a_node_has_an_environment_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of the caller")
    monkeypatch.setenv("SOMETHING", "of the caller")
    group = stub_group(world, "environment", "serve")
    (instance_id,) = world.in_service(group)
    root = world.site.nodes / instance_id / "root"
    found = dict(
        line.split("=", 1) for line in (root / "environment").read_text().splitlines() if "=" in line
    )
    assert found["HOME"] == str(root / "root")
    assert found["TMPDIR"] == str(root / "tmp")
    assert found["AWS_ENDPOINT_URL"] == world.aws.endpoint
    assert found[MARKER] == str(world.local)
    assert not [name for name in found if "SECRET" in name or "ACCESS_KEY" in name or name == "SOMETHING"]


def test_a_spot_notice_reaches_the_node_then_its_instance_ends_and_is_replaced(world: World) -> None:
    group = stub_group(world, "spot", "serve", desired=2, mixed=(1, 0))
    first, second = world.in_service(group, 2)
    assert [world.record(i)["lifecycle"] for i in (first, second)] == ["on-demand", "spot"]
    (world.local / "control").mkdir(exist_ok=True)
    order = {"kind": "spot-notice", "instanceId": second}
    (world.local / "control" / "test.order").write_text(json.dumps(order))
    world.until(lambda: world.record(second)["state"] == "exited", "the noticed node's exit")
    record = world.record(second)
    assert (record["exitCode"], record["exitName"]) == (75, "75 STOPPED_SAVED")
    assert record["notice"]["kind"] == "spot"
    assert 'spot notice { "action": "terminate", "time":' in world.console(second)
    assert second in world.states(group), "the instance lives until the notice's time is over"
    world.until(lambda: second not in world.states(group), "the interruption")
    assert first in world.in_service(group, 2)
    assert world.record(second)["state"] == "gone"


def test_scale_in_is_announced_in_the_metadata_and_waits_for_the_node(world: World) -> None:
    group = stub_group(world, "leave", "serve")
    (instance_id,) = world.in_service(group)
    world.clusters[group].autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    world.until(lambda: world.states(group) == {}, "the node's answer to the terminating hook")
    world.until(lambda: world.record(instance_id)["state"] == "gone", "the node's end")
    assert "taken out of service" in world.console(instance_id)


def test_kill_9_of_a_node_leaves_nothing_and_replaces_it(world: World) -> None:
    group = stub_group(world, "crash", "serve")
    (instance_id,) = world.in_service(group)
    worker = world.worker(instance_id)
    assert alive(worker)
    os.kill(world.record(instance_id)["init"]["pid"], signal.SIGKILL)
    world.until(lambda: instance_id not in world.states(group), "the crashed instance's end")
    assert not alive(worker)
    (other,) = world.in_service(group)
    assert other != instance_id


def test_the_agent_alone_killed_is_started_again_as_by_systemd(world: World) -> None:
    group = stub_group(world, "restart", "serve")
    (instance_id,) = world.in_service(group)
    started = next(
        s["step"] for s in world.record(instance_id)["steps"] if s["step"].startswith("agent started")
    )
    os.kill(int(started.rpartition(" ")[2]), signal.SIGKILL)
    world.until(lambda: world.console(instance_id).count("bootstrap: agent started") == 2, "the second start")
    world.until(lambda: world.console(instance_id).count("in service") == 2, "the second agent")
    assert world.states(group) == {instance_id: "InService"}


def test_an_exit_that_keeps_the_instance(world: World) -> None:
    group = stub_group(world, "stay", "exit:20")
    (instance_id,) = world.in_service(group)
    world.until(lambda: world.record(instance_id)["exitName"] == "20 DATASET", "the exit")
    worker = world.worker(instance_id)
    for _ in range(5):
        world.service.step(time.monotonic())
    assert world.states(group) == {instance_id: "InService"}
    assert not alive(worker), "the unit's whole tree ends with the agent"


def test_a_broken_device_replaces_the_node(world: World) -> None:
    group = stub_group(world, "replace", "exit:10")
    world.until(lambda: len(world.states(group)) == 1, "the launch")
    (instance_id,) = world.states(group)
    world.until(lambda: instance_id not in world.states(group), "the replacement")
    assert world.record(instance_id)["exitName"] == "10 DEVICE"
    world.clusters[group].autoscaling.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)


def test_a_request_to_reboot_starts_the_agent_again(world: World) -> None:
    group = stub_group(world, "reboot", "exit:11")
    world.until(lambda: len(world.states(group)) == 1, "the launch")
    (instance_id,) = world.states(group)
    world.until(
        lambda: world.record(instance_id)["reboots"] == 1 and world.record(instance_id)["state"] == "running",
        "the reboot",
    )
    assert world.states(group) == {instance_id: "InService"}


def test_without_a_driver_an_order_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "ANSWER_LIMIT_SECONDS", 0.2)
    status, text = control.give_order(tmp_path, "spot-notice", "i-0")
    assert (status, "no node driver" in text) == ("unanswered", True)
    assert list((tmp_path / "control").iterdir()) == []


def test_a_second_driver_for_the_same_folder_is_refused(world: World) -> None:
    with lock(world.site), pytest.raises(AnotherDriver, match="another node driver runs"):
        lock(world.site)


def test_nodes_of_a_killed_driver_are_reported_and_replaced(world: World) -> None:
    group = stub_group(world, "orphan", "serve")
    (instance_id,) = world.in_service(group)
    worker = world.worker(instance_id)
    world.service = Service(world.site, Cloud(world.aws.endpoint, REGION), NOTICE_SECONDS)
    assert not alive(worker)
    world.until(lambda: instance_id not in world.states(group), "the orphan's replacement", 60)
