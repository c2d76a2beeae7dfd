"""EC2's power calls as nodes and the node driver see them: reboots leave a mark, and dead instances stay dead.

An instance has no operating system here, so that nothing happens when it is rebooted; whoever plays its machine
reads the tag and acts upon it.
"""

from __future__ import annotations

from typing import Any

from moto.ec2.exceptions import EC2ClientError
from moto.ec2.models.instances import Instance, InstanceBackend

REBOOTS_TAG = (
    "gpu-training:reboots"  # how often RebootInstances was called on the instance, as a decimal number
)
STARTABLE = frozenset({"stopped", "running", "pending"})
STOPPABLE = frozenset({"running", "pending", "stopped"})
REBOOTABLE = frozenset({"running"})

_start = InstanceBackend.start_instances
_stop = InstanceBackend.stop_instances


def start_instances(backend: InstanceBackend, instance_ids: list[str]) -> list[Any]:
    _refuse(backend, instance_ids, STARTABLE, "started")
    return _start(backend, instance_ids)


def stop_instances(backend: InstanceBackend, instance_ids: list[str]) -> list[Any]:
    _refuse(backend, instance_ids, STOPPABLE, "stopped")
    return _stop(backend, instance_ids)


def reboot_instances(backend: InstanceBackend, instance_ids: list[str]) -> list[Instance]:
    """All of them or none; each call counts, also while an earlier one has not been acted upon."""
    _refuse(backend, instance_ids, REBOOTABLE, "rebooted")
    instances = backend.get_multi_instances_by_id(instance_ids)
    for instance in instances:
        before = {tag["key"]: tag["value"] for tag in instance.get_tags()}.get(REBOOTS_TAG, "0")
        instance.add_tags({REBOOTS_TAG: str(int(before) + 1)})
    return instances


def _refuse(backend: InstanceBackend, instance_ids: list[str], allowed: frozenset[str], what: str) -> None:
    for instance in backend.get_multi_instances_by_id(instance_ids):
        if instance.state not in allowed:
            raise EC2ClientError(
                "IncorrectInstanceState",
                f"This instance '{instance.id}' is not in a state from which it can be {what}.",
            )
