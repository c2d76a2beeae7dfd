"""What the budget stop runs in AWS Lambda: every group of the stack to zero nodes, and no launches any more.

Started by the budget's message. It may run again for the same message (Lambda tries a failed run twice more); what is
done already stays as it is. Whoever goes on after it takes the commands from the log, or from docs/cost.md.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

GROUPS_VARIABLE = "GROUPS"  # JSON: name of the Auto Scaling group -> its least size, for the commands only

log = logging.getLogger()
log.setLevel(logging.INFO)


class NotAllStopped(Exception):
    """Ends the run as failed, so that it is tried again and, at last, told on the alerts topic."""


def handler(event: Mapping[str, Any], _context: object) -> dict[str, list[str]]:
    """Lambda's entry. Raises NotAllStopped when a group could not be stopped; the others are, all the same."""
    for record in event.get("Records", []):
        log.warning("budget: %s", (record.get("Sns") or {}).get("Subject") or "no subject")
    groups: dict[str, int] = json.loads(os.environ[GROUPS_VARIABLE])
    client = boto3.client("autoscaling")
    failed = [name for name, least in groups.items() if not stop(client, name, least)]
    if failed:
        raise NotAllStopped(f"still running: {', '.join(failed)}")
    return {"stopped": list(groups)}


def stop(client: Any, group: str, least: int) -> bool:
    """Launches first, so that nothing comes after the nodes went. A call that fails keeps no other from being made."""
    suspended = _try(
        group,
        lambda: client.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=["Launch"]),
    )
    emptied = _try(
        group,
        lambda: client.update_auto_scaling_group(AutoScalingGroupName=group, MinSize=0, DesiredCapacity=0),
    )
    if suspended and emptied:
        log.warning("group %s: zero nodes, launches suspended. Resume with: %s", group, resume(group, least))
    return suspended and emptied


def resume(group: str, least: int) -> str:
    """The commands that undo it."""
    named = f"--auto-scaling-group-name {group}"
    return (
        f"aws autoscaling resume-processes {named} --scaling-processes Launch && "
        f"aws autoscaling update-auto-scaling-group {named} --min-size {least}"
    )


def _try(group: str, call: Any) -> bool:
    try:
        call()
    except (ClientError, BotoCoreError) as error:
        log.error("group %s: %s", group, error)
        return False
    return True
