"""Faults of a node's processes and of its life in the group."""

from __future__ import annotations

import signal

from .disks import BlockedShard
from .node import LiveNode
from .scene import Scene

DATASET = "shapes@v1"


def kill_worker(scene: Scene) -> None:
    _kill_workers(scene, scene.follower)


def kill_leading_worker(scene: Scene) -> None:
    _kill_workers(scene, scene.leader)


def _kill_workers(scene: Scene, node: LiveNode) -> None:
    workers = node.workers()
    scene.mark()
    node.signal_all(workers, signal.SIGKILL)


def kill_agent(scene: Scene) -> None:
    agents = scene.follower.agents()
    scene.mark()
    scene.follower.signal_all(agents, signal.SIGKILL)


def stop_rank(scene: Scene) -> None:
    """The watchdog must find it: nothing else will."""
    workers = scene.follower.workers()
    scene.mark()
    scene.follower.signal_all(workers, signal.SIGSTOP)


def block_loader(scene: Scene) -> None:
    """Loaders open a shard when its first sample is due: the kill makes them open it again."""
    node = scene.follower
    shard = BlockedShard.block(node, DATASET)
    scene.mark()
    node.signal_all(node.workers(), signal.SIGKILL)
    try:
        scene.wait_said("no step")
    finally:
        shard.release()
    scene.healed()


def crash_node(scene: Scene) -> None:
    _crash(scene, scene.follower)


def crash_leader(scene: Scene) -> None:
    _crash(scene, scene.leader)


def _crash(scene: Scene, node: LiveNode) -> None:
    scene.mark()
    scene.order("crash", node)


def reboot_node(scene: Scene) -> None:
    scene.mark()
    scene.order("reboot", scene.follower)


def notice_follower(scene: Scene) -> None:
    node = scene.follower
    scene.mark()
    scene.order("spot-notice", node)


def notice_leader(scene: Scene) -> None:
    node = scene.leader
    scene.mark()
    scene.order("spot-notice", node)


def notice_all_but_one(scene: Scene) -> None:
    nodes = scene.members()[1:]
    scene.mark()
    for node in nodes:
        scene.order("spot-notice", node)


def rebalance(scene: Scene) -> None:
    scene.mark()
    scene.order("rebalance", scene.follower)


def retire(scene: Scene) -> None:
    node = scene.follower
    scene.mark()
    scene.order("scheduled-event", node, "instance-retirement", 120.0)


def unhealthy(scene: Scene) -> None:
    node = scene.follower
    scene.mark()
    scene.facts.autoscaling.set_instance_health(
        InstanceId=node.instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
    )


def grow_and_shrink(scene: Scene) -> None:
    """Three are there: two remain, the third comes back while they train, and goes again."""
    scene.desired(2)
    scene.wait("a world of two", lambda: len(scene.generation().members) == 2)
    scene.mark()
    scene.desired(3)
    scene.wait("a world of three", lambda: len(scene.generation().members) == 3 or scene.over())
    before = scene.step()
    scene.wait("its steps", lambda: scene.step() > before + 5 or scene.over())
    scene.desired(2)
    scene.wait("a world of two again", lambda: len(scene.generation().members) == 2 or scene.over())
    scene.healed()


def two_boot_at_once(scene: Scene) -> None:
    scene.desired(1)
    scene.wait("a world of one", lambda: len(scene.generation().members) == 1)
    scene.mark()
    scene.desired(3)
    scene.wait("a world of three", lambda: len(scene.generation().members) == 3 or scene.over())
    scene.healed()
