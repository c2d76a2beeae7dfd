"""What a node goes through between its boot and its end: warmed, stopped, started, rebooted, cut off, released.

The calls are EC2's and the group's, in the local AWS API, or orders to the driver; a stub is the agent.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.local.node_kit import World, alive, metadata, stub_group, stub_world

numbers = itertools.count()
FAR_AHEAD_SECONDS = 1000.0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with stub_world(tmp_path_factory) as found:
        yield found


def order(world: World, kind: str, instance_id: str, **more: Any) -> dict[str, str]:
    """Give an order and return its answer, which the driver's next round gives."""
    folder = world.local / "control"
    folder.mkdir(exist_ok=True)
    path = folder / f"test-{next(numbers)}.order"
    path.write_text(json.dumps({"kind": kind, "instanceId": instance_id, **more}))
    world.service.step(time.monotonic())
    return json.loads(path.with_suffix(".answer").read_text())


def in_state(world: World, instance_id: str, state: str) -> None:
    world.until(lambda: world.record(instance_id)["state"] == state, f"{instance_id} {state}")


def times_user_data_ran(world: World, instance_id: str) -> int:
    return world.console(instance_id).count("bootstrap: install the stub")


def leave_a_mark(world: World, instance_id: str) -> None:
    (world.site.nodes / instance_id / "root" / "opt" / "mark").write_text("here before")


def marked(world: World, instance_id: str) -> bool:
    return (world.site.nodes / instance_id / "root" / "opt" / "mark").exists()


# ---- by EC2 and the group


def test_a_warm_node_boots_is_put_off_and_comes_into_service_as_itself(world: World) -> None:
    group = stub_group(world, "warm", "serve", desired=0)
    cluster = world.clusters[group]
    cluster.autoscaling.put_warm_pool(AutoScalingGroupName=group, MaxGroupPreparedCapacity=1)
    world.until(lambda: list(cluster.warm(group).values()) == ["Warmed:Stopped"], "a warm instance")
    (instance_id,) = cluster.warm(group)
    in_state(world, instance_id, "stopped")
    assert not alive(world.worker(instance_id))
    leave_a_mark(world, instance_id)
    cluster.autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=1)
    assert world.in_service(group) == [instance_id]
    in_state(world, instance_id, "running")
    assert alive(world.worker(instance_id))
    assert marked(world, instance_id)
    assert times_user_data_ran(world, instance_id) == 1


def test_a_pool_of_running_nodes_leaves_them_running(world: World) -> None:
    group = stub_group(world, "warm-running", "serve", desired=0)
    cluster = world.clusters[group]
    cluster.autoscaling.put_warm_pool(
        AutoScalingGroupName=group, MaxGroupPreparedCapacity=1, PoolState="Running"
    )
    world.until(lambda: list(cluster.warm(group).values()) == ["Warmed:Running"], "a warm instance")
    (instance_id,) = cluster.warm(group)
    for _ in range(3):
        world.service.step(time.monotonic())
    assert world.record(instance_id)["state"] == "running"


def test_a_stopped_node_is_kept_and_starts_again_without_its_user_data(world: World) -> None:
    group = stub_group(world, "stop", "serve")
    (instance_id,) = world.in_service(group)
    world.clusters[group].autoscaling.suspend_processes(  # else the group replaces it
        AutoScalingGroupName=group, ScalingProcesses=["ReplaceUnhealthy", "HealthCheck"]
    )
    worker = world.worker(instance_id)
    assert order(world, "stop", instance_id)["status"] == "done"
    in_state(world, instance_id, "stopped")
    assert not alive(worker)
    assert world.record(instance_id)["init"] is None
    leave_a_mark(world, instance_id)
    assert order(world, "start", instance_id)["status"] == "done"
    in_state(world, instance_id, "running")
    assert marked(world, instance_id)
    assert times_user_data_ran(world, instance_id) == 1


def test_the_group_replaces_a_node_that_ec2_stopped(world: World) -> None:
    group = stub_group(world, "stop-replace", "serve")
    (instance_id,) = world.in_service(group)
    order(world, "stop", instance_id)
    world.until(lambda: instance_id not in world.states(group), "the replacement")
    in_state(world, instance_id, "gone")


def test_a_reboot_keeps_the_node_and_starts_its_agent_again(world: World) -> None:
    group = stub_group(world, "ec2-reboot", "serve")
    (instance_id,) = world.in_service(group)
    worker = world.worker(instance_id)
    leave_a_mark(world, instance_id)
    assert order(world, "reboot", instance_id)["status"] == "done"
    world.until(
        lambda: world.record(instance_id)["reboots"] == 1 and world.record(instance_id)["state"] == "running",
        "the reboot",
    )
    assert not alive(worker)
    assert "told to stop" in world.console(instance_id), "it was shut down in order"
    assert marked(world, instance_id)
    assert times_user_data_ran(world, instance_id) == 1
    assert world.states(group) == {instance_id: "InService"}
    node = world.service.nodes[instance_id]
    assert node.view().reboots == 0, "its agent may still ask for one before the node counts as broken"
    node.watch(time.monotonic() + FAR_AHEAD_SECONDS)
    for _ in range(5):  # a killed node would show within these rounds
        time.sleep(0.05)
        world.service.step(time.monotonic())
    assert world.record(instance_id)["state"] == "running", "the shut-down's time limit went with it"


def test_a_node_whose_power_is_cut_says_nothing_more_and_is_replaced(world: World) -> None:
    group = stub_group(world, "cut", "serve")
    (instance_id,) = world.in_service(group)
    worker = world.worker(instance_id)
    assert order(world, "crash", instance_id)["status"] == "done"
    world.until(lambda: instance_id not in world.states(group), "the replacement")
    assert not alive(worker)
    assert "told to stop" not in world.console(instance_id)


# ---- by the agent's exit


def test_a_node_whose_run_is_over_is_released_with_its_place(world: World) -> None:
    group = stub_group(world, "release", "exit:0")
    world.until(lambda: len(world.states(group)) == 1, "the launch")
    (instance_id,) = world.states(group)
    world.until(lambda: world.states(group) == {}, "the release")
    in_state(world, instance_id, "gone")
    for _ in range(5):
        world.service.step(time.monotonic())
    assert world.states(group) == {}, "nobody took its place"


def test_a_node_that_the_minimum_size_keeps_has_its_agent_started_again(world: World) -> None:
    group = stub_group(world, "kept", "exit:0", minimum=1)
    (instance_id,) = world.in_service(group)
    world.until(lambda: world.console(instance_id).count("agent started") == 2, "the second start")
    in_state(world, instance_id, "running")
    assert world.states(group) == {instance_id: "InService"}
    assert times_user_data_ran(world, instance_id) == 1


# ---- by order


def test_a_scheduled_event_is_shown_and_leaves_the_end_to_be_announced(world: World) -> None:
    group = stub_group(world, "event", "serve")
    (instance_id,) = world.in_service(group)
    answer = order(world, "scheduled-event", instance_id, code="instance-retirement", seconds=600)
    assert answer["status"] == "done"
    endpoint = world.record(instance_id)["metadata"]["endpoint"]
    (event,) = json.loads(metadata(endpoint, "events/maintenance/scheduled") or "[]")
    assert (event["Code"], event["State"]) == ("instance-retirement", "active")
    assert world.record(instance_id)["notice"]["kind"] == "scheduled"
    world.clusters[group].autoscaling.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0)
    world.until(lambda: world.states(group) == {}, "the node's answer to the terminating hook")
    assert "taken out of service" in world.console(instance_id)


def test_an_order_for_a_node_that_is_not_there_is_refused_with_the_nearest(world: World) -> None:
    group = stub_group(world, "nearest", "serve")
    (instance_id,) = world.in_service(group)
    mistyped = instance_id[:-1] + ("0" if instance_id[-1] != "0" else "1")
    assert order(world, "crash", mistyped) == {
        "status": "refused",
        "text": f"no such node is alive; did you mean {instance_id}?",
    }
    answer = order(world, "stop", "web-server")
    assert answer["status"] == "refused"
    assert f"{instance_id}" in answer["text"], "all that are alive, where none is near"


def test_a_node_that_runs_cannot_be_started(world: World) -> None:
    group = stub_group(world, "running", "serve")
    (instance_id,) = world.in_service(group)
    order(world, "start", instance_id)
    world.service.step(time.monotonic())
    assert world.record(instance_id)["reboots"] == 0
    assert world.console(instance_id).count("agent started") == 1
