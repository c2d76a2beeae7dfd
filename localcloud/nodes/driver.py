"""What the node driver does next: pure decisions from what AWS says and what the node's processes show.

The reaction to exit codes is that of the systemd unit and its stop helper on a real node; the table behind
both is `trainer.exit_codes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from trainer.exit_codes import Exit

REPLACE = frozenset({Exit.DEVICE, Exit.RESET, Exit.PERFORMANCE})
BOOT_FAULTS = frozenset(code for code in Exit if code.name.startswith("BOOT_"))
WARMING = frozenset({"Warmed:Pending", "Warmed:Pending:Wait", "Warmed:Pending:Proceed", "Warmed:Running"})
BOOTABLE = WARMING | {"Pending", "Pending:Wait", "Pending:Proceed", "InService"}
GONE_STATES = frozenset({"shutting-down", "terminated"})
OFF_STATES = frozenset({"stopping", "stopped"})


class Phase(str, Enum):
    BOOTING = "booting"  # user data runs
    RUNNING = "running"  # the agent was started
    STOPPING = "stopping"  # told to end, has not yet
    STOPPED = "stopped"  # powered off by EC2; what it wrote is kept
    EXITED = "exited"  # ended by itself; the instance is still there
    KILLED = "killed"  # ended by a signal: the machine crashed
    GONE = "gone"  # the instance is terminated, its processes ended


@dataclass(frozen=True)
class Instance:
    """An instance of a group as AWS shows it."""

    instance_id: str
    group: str  # Auto Scaling group name
    lifecycle_state: str
    ec2_state: str = "running"
    reboots: int = 0  # how often RebootInstances was called on it

    @property
    def gone(self) -> bool:
        return self.ec2_state in GONE_STATES

    @property
    def off(self) -> bool:
        return self.ec2_state in OFF_STATES or self.lifecycle_state == "Warmed:Stopped"


@dataclass(frozen=True)
class Node:
    """A node as the driver knows it."""

    instance_id: str
    phase: Phase
    exit_code: int | None = None
    reboots: int = 0  # of those that its agent asked for
    interrupt_at: float | None = None  # when a spot notice runs out, on the clock of `now`
    announced: bool = False  # its metadata service shows the end that its group or EC2 has in mind
    settled: bool = False  # its exit has been acted upon
    reboots_obeyed: int = 0  # of those that EC2 was asked for

    @property
    def alive(self) -> bool:
        return self.phase in (Phase.BOOTING, Phase.RUNNING, Phase.STOPPING)


class Do(str, Enum):
    BOOT = "boot"
    REBOOT = "reboot"
    STOP = "stop"
    POWER_OFF = "power-off"
    POWER_ON = "power-on"
    RELEASE = "release"  # out of the group for good, with its place
    CLEAR = "clear"  # end what is left of a node whose instance is gone
    REPORT_UNHEALTHY = "report-unhealthy"
    TERMINATE = "terminate"  # in EC2, without asking the group
    ANNOUNCE_TERMINATION = "announce-termination"  # show target-lifecycle-state Terminated in the metadata
    SETTLE = "settle"  # nothing but to log how the node ended


@dataclass(frozen=True)
class Action:
    do: Do
    instance_id: str
    why: str


def decide(instances: Sequence[Instance], nodes: Sequence[Node], now: float) -> list[Action]:
    """Every action that is due; at most one for each node."""
    known = {node.instance_id: node for node in nodes}
    present = {instance.instance_id: instance for instance in instances if not instance.gone}
    actions = [
        action
        for node in nodes
        if (action := _for_node(node, present.get(node.instance_id), now)) is not None
    ]
    for instance in present.values():
        if instance.instance_id not in known and instance.lifecycle_state in BOOTABLE and not instance.off:
            actions.append(Action(Do.BOOT, instance.instance_id, f"capacity of {instance.group}"))
    return actions


def _for_node(node: Node, instance: Instance | None, now: float) -> Action | None:
    if instance is None:
        if node.phase in (Phase.BOOTING, Phase.RUNNING):
            return Action(Do.STOP, node.instance_id, "the instance is terminated")
        if node.phase in (Phase.EXITED, Phase.KILLED, Phase.STOPPED):
            return Action(Do.CLEAR, node.instance_id, "the instance is terminated")
        return None
    if node.interrupt_at is not None and now >= node.interrupt_at:
        return Action(Do.TERMINATE, node.instance_id, "the time of the spot notice is over")
    if instance.off:
        running = node.phase in (Phase.BOOTING, Phase.RUNNING, Phase.EXITED, Phase.KILLED)
        return Action(Do.POWER_OFF, node.instance_id, "EC2 stops the instance") if running else None
    if node.phase is Phase.STOPPED:
        return Action(Do.POWER_ON, node.instance_id, "EC2 starts the instance")
    if instance.reboots > node.reboots_obeyed and node.phase in (Phase.BOOTING, Phase.RUNNING):
        return Action(Do.REBOOT, node.instance_id, "EC2 reboots the instance")
    terminating = instance.lifecycle_state.startswith("Terminating")
    if node.phase is Phase.GONE:
        # A driver that was killed took its nodes along; the instances without machines are dead.
        return _unhealthy(node, terminating, "its processes are gone")
    if node.phase is Phase.KILLED:
        return _unhealthy(node, terminating, "its processes were killed")
    if node.phase is Phase.EXITED and (terminating or not node.settled):
        return _after_exit(node, instance, terminating)
    if terminating and node.alive and not node.announced:
        return Action(Do.ANNOUNCE_TERMINATION, node.instance_id, "its group takes it out of service")
    return None


def _unhealthy(node: Node, terminating: bool, why: str) -> Action | None:
    if terminating:
        return Action(
            Do.TERMINATE, node.instance_id, f"{why}: nobody is left to complete the terminating hook"
        )
    return None if node.settled else Action(Do.REPORT_UNHEALTHY, node.instance_id, why)


def _after_exit(node: Node, instance: Instance, terminating: bool) -> Action | None:
    code = node.exit_code if node.exit_code is not None else 0
    name = exit_name(code)
    if terminating:
        return Action(Do.TERMINATE, node.instance_id, f"it ended with {name} and shuts down")
    if node.settled:
        return None
    if code == Exit.REBOOT and node.reboots == 0:
        return Action(Do.REBOOT, node.instance_id, f"exit {name}")
    if code in REPLACE or code == Exit.REBOOT:
        return Action(Do.REPORT_UNHEALTHY, node.instance_id, f"exit {name}")
    if code == Exit.DONE:
        return Action(Do.RELEASE, node.instance_id, "its run is over, and the node may go")
    if code in BOOT_FAULTS and instance.lifecycle_state.startswith("Pending"):
        # The bootstrap abandons its launch itself; where it could not reach AWS, the hook would time out.
        return Action(Do.REPORT_UNHEALTHY, node.instance_id, f"exit {name}, and its launch is still waiting")
    return Action(Do.SETTLE, node.instance_id, f"exit {name}: the instance stays, nothing is replaced")


def exit_name(code: int) -> str:
    """`55 BOOT_RELEASE_HASH`; the bare number where the table has none."""
    try:
        return f"{code} {Exit(code).name}"
    except ValueError:
        return str(code)
