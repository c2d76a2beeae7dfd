"""Faults of the network between nodes, of S3 and the AWS API, of the metadata service."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import daemons
from ..gateway.control import Rule
from ..nodes.network import BRIDGE, interface_of
from ..processes import Identity, command_line, end, identify
from . import network
from .inject_node import kill_worker
from .node import InjectionFailed, LiveNode
from .scene import Scene

Inject = Callable[[Scene], None]
RELAY = Path(__file__).with_name("delay_relay.py")
DELAY_MILLISECONDS = 25
AFTER_SECONDS = 3.0  # that a fault goes on once the run has recovered from it


def partition_from_peers(scene: Scene) -> None:
    node, others = scene.follower, scene.members()[:-1]
    scene.mark()
    network.cut_off_from(node, others)
    _until_regrouped(scene, node)


def partition_from_s3(scene: Scene) -> None:
    node = scene.follower
    scene.mark()
    network.cut_off_from_aws(node)
    _until_regrouped(scene, node)


def _until_regrouped(scene: Scene, node: LiveNode) -> None:
    """Both halves stay alive, and cut off, until one of them trains on; then the network heals."""
    try:
        scene.wait_regrouped()
        scene.sleep(AFTER_SECONDS)
    finally:
        network.heal(node)
    scene.healed()


def lose_packets(scene: Scene) -> None:
    node = scene.follower
    scene.mark()
    network.lose_packets(node, 5)
    scene.undo.callback(network.heal, node)


def limit_rate(scene: Scene) -> None:
    node = scene.follower
    scene.mark()
    network.limit_rate(node, 4)
    scene.undo.callback(network.lift_rate, node)


def delay(scene: Scene) -> None:
    """The node's cable leaves the bridge and goes through a relay that holds every frame back."""
    node = scene.follower
    resolver = _daemon(scene, "dnsmasq")
    enter = ["nsenter", "--target", str(resolver.pid), "--net", "--"]
    cable = interface_of(node.instance_id)
    _run(*enter, "ip", "link", "add", "delay0", "type", "veth", "peer", "name", "delay1")
    scene.undo.callback(_run, *enter, "ip", "link", "delete", "delay0")
    _run(*enter, "ip", "link", "set", "delay1", "up")
    node.inside(sys.executable, str(RELAY), "--only-offloads", "eth0")
    command = [*enter, sys.executable, str(RELAY), cable, "delay1"]
    command += ["--milliseconds", str(DELAY_MILLISECONDS), "--seed", "1", "--also", "delay0"]
    with (scene.stack.local / "log" / "delay.log").open("ab") as log:
        relay = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    scene.undo.callback(_run, *enter, "ip", "link", "set", cable, "master", BRIDGE)
    scene.undo.callback(_end, relay)
    time.sleep(0.5)
    scene.mark()
    _run(*enter, "ip", "link", "set", cable, "nomaster")
    _run(*enter, "ip", "link", "set", "delay0", "master", BRIDGE, "up")


def _end(process: subprocess.Popen[bytes]) -> None:
    found = identify(process.pid)
    if found is not None:
        end([found], grace_seconds=2)
    process.wait(timeout=5)


def s3(kind: Any, **matching: Any) -> Inject:
    def inject(scene: Scene) -> None:
        scene.mark()
        scene.s3_faults(Rule(kind=kind, **matching))

    return inject


def s3_for(seconds: float, kind: Any, **matching: Any) -> Inject:
    """For a time, every call of every node."""

    def inject(scene: Scene) -> None:
        scene.mark()
        scene.s3_faults(Rule(kind=kind, times=None, **matching))
        scene.sleep(seconds)
        scene.heal_s3()

    return inject


def s3_while_resuming(kind: Any, **matching: Any) -> Inject:
    """A node that leads has its checkpoint on its own disk: one that lost it has to fetch it."""

    def inject(scene: Scene) -> None:
        for node in scene.members():
            node.inside(
                "/bin/sh", "-c", f"rm -rf /var/lib/trainer/runs/{scene.run}/checkpoints/step-*", mounts=True
            )
        scene.s3_faults(Rule(kind=kind, **matching))
        kill_worker(scene)
        for node in scene.members():
            node.inside(
                "/bin/sh", "-c", f"rm -rf /var/lib/trainer/runs/{scene.run}/checkpoints/step-*", mounts=True
            )

    return inject


def restart_aws(scene: Scene) -> None:
    daemon = daemons.running(scene.stack.local, "aws")
    if daemon is None:
        raise InjectionFailed("the AWS emulation does not run")
    scene.mark()
    daemon.identity.send(signal.SIGUSR1)
    scene.sleep(10.0)
    scene.healed()


def silence_metadata(scene: Scene) -> None:
    """The service hangs: connections are taken, nothing is answered."""
    found = scene.follower.record["metadata"]["process"]
    service = Identity(found["pid"], found["started"])
    scene.mark()
    if not service.send(signal.SIGSTOP):
        raise InjectionFailed("the node's metadata service is gone")
    try:
        scene.sleep(10.0)
    finally:
        service.send(signal.SIGCONT)
    scene.healed()


def _daemon(scene: Scene, name: str) -> Identity:
    for process in daemons.find_leavings(scene.stack.local):
        if command_line(process.pid).startswith(name):
            return process
    raise InjectionFailed(f"no {name} runs")


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise InjectionFailed(f"{' '.join(command)}: {done.stderr.strip()}")
