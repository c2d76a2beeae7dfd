"""What the agent tells AWS about its own node: lifecycle hooks, health, counts behind alarms.

The rights needed are exactly the calls below, on the node's own Auto Scaling group. A refused call is logged and
never ends the agent, except where the node could not be judged without it.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from ..contracts.node_document import NodeDocument
from ..obs.logs import get_logger

BREAKER_WINDOW_SECONDS = 3600
REPLACEMENT_SECONDS = (
    20.0  # the group acts on a node's health within seconds, then its terminating hook waits
)
SELF_CHECK_FAILED = "SelfCheckFailed"
LAUNCHES_SUSPENDED = "LaunchesSuspended"
NODES_TRAINING = "NodesTraining"
DESCRIBE_LIMIT = 50  # instance ids in one DescribeAutoScalingInstances


def _client(service: str, region: str, attempts: int = 6, read_seconds: float = 20) -> Any:
    retries: Any = {"mode": "standard", "total_max_attempts": attempts}
    config = Config(retries=retries, connect_timeout=min(5, read_seconds), read_timeout=read_seconds)
    return boto3.client(service, region_name=region, config=config)  # pyright: ignore[reportCallIssue, reportArgumentType]


@dataclass
class Lifecycle:
    document: NodeDocument
    instance_id: str
    autoscaling: Any
    cloudwatch: Any
    lookups: Any  # Auto Scaling too, for the question of every poll, which must not hold up the agent's loop

    @classmethod
    def connect(cls, document: NodeDocument, instance_id: str) -> Lifecycle:
        region = document.region
        lookups = _client("autoscaling", region, attempts=2, read_seconds=5)
        return cls(
            document, instance_id, _client("autoscaling", region), _client("cloudwatch", region), lookups
        )

    def complete(self, hook: str, result: str) -> bool:
        """CONTINUE or ABANDON. False where nothing was waiting (a reboot) or the call was refused."""
        return self._try(
            "complete_lifecycle_action",
            lambda: self.autoscaling.complete_lifecycle_action(
                AutoScalingGroupName=self.document.auto_scaling_group,
                LifecycleHookName=hook,
                InstanceId=self.instance_id,
                LifecycleActionResult=result,
            ),
        )

    def heartbeat(self, hook: str) -> bool:
        return self._try(
            "record_lifecycle_action_heartbeat",
            lambda: self.autoscaling.record_lifecycle_action_heartbeat(
                AutoScalingGroupName=self.document.auto_scaling_group,
                LifecycleHookName=hook,
                InstanceId=self.instance_id,
            ),
        )

    def ask_for_replacement(self) -> bool:
        """The group replaces the node at once, whatever its grace period; nothing is left to wait for here."""
        asked = self._try(
            "set_instance_health",
            lambda: self.autoscaling.set_instance_health(
                InstanceId=self.instance_id, HealthStatus="Unhealthy", ShouldRespectGracePeriod=False
            ),
        )
        deadline = time.monotonic() + REPLACEMENT_SECONDS
        while asked and not self.complete(self.document.terminating_hook, "CONTINUE"):
            if time.monotonic() > deadline:  # the hook's own time-out does the rest
                break
            time.sleep(1)
        return asked

    def life_cycles(self, instance_ids: Iterable[str]) -> dict[str, str] | None:
        """The state (InService, Terminating:Wait...) of those that are in a group; None where AWS gave no answer."""
        ids, states = sorted(set(instance_ids)), {}
        for start in range(0, len(ids), DESCRIBE_LIMIT):
            chunk = ids[start : start + DESCRIBE_LIMIT]
            try:
                answer = self.lookups.describe_auto_scaling_instances(InstanceIds=chunk)
            except (ClientError, BotoCoreError) as error:
                get_logger().warning("describe_auto_scaling_instances failed", error=str(error))
                return None
            states.update({i["InstanceId"]: i["LifecycleState"] for i in answer["AutoScalingInstances"]})
        return states

    def count(self, metric: str, value: int = 1) -> bool:
        """Add to a CloudWatch metric of the node's group."""
        return self._try(
            "put_metric_data",
            lambda: self.cloudwatch.put_metric_data(
                Namespace=self.document.metric_namespace,
                MetricData=[
                    {"MetricName": metric, "Dimensions": self._dimensions, "Value": value, "Unit": "Count"}
                ],
            ),
        )

    def report_failed_boot(self) -> bool:
        """Count it; with more than ``maxReplacements`` in an hour suspend the group's launches. True if suspended."""
        self.count(SELF_CHECK_FAILED)
        failed = self._failed_boots()
        if failed <= self.document.self_check.max_replacements:
            return False
        group = self.document.auto_scaling_group
        suspended = self._try(
            "suspend_processes",
            lambda: self.autoscaling.suspend_processes(
                AutoScalingGroupName=group, ScalingProcesses=["Launch"]
            ),
        )
        if suspended:
            self.count(LAUNCHES_SUSPENDED)
            get_logger().error(
                f"{failed:.0f} nodes failed within an hour: launches of {group} are suspended. Resume with: "
                f"aws autoscaling resume-processes --region {self.document.region} "
                f"--auto-scaling-group-name {group} --scaling-processes Launch"
            )
        return suspended

    def _failed_boots(self) -> float:
        now = datetime.datetime.now(datetime.timezone.utc)
        try:
            answer = self.cloudwatch.get_metric_statistics(
                Namespace=self.document.metric_namespace,
                MetricName=SELF_CHECK_FAILED,
                Dimensions=self._dimensions,
                StartTime=now - datetime.timedelta(seconds=BREAKER_WINDOW_SECONDS),
                EndTime=now + datetime.timedelta(minutes=1),
                Period=60,
                Statistics=["Sum"],
            )
        except (ClientError, BotoCoreError) as error:
            get_logger().warning("get_metric_statistics failed", error=str(error))
            return 1.0
        # CloudWatch may not show the count of a moment ago yet: this node is one of them in any case.
        return max(1.0, sum(point["Sum"] for point in answer["Datapoints"]))

    @property
    def _dimensions(self) -> list[dict[str, str]]:
        return [{"Name": "AutoScalingGroupName", "Value": self.document.auto_scaling_group}]

    def _try(self, name: str, call: Any) -> bool:
        try:
            call()
        except (ClientError, BotoCoreError) as error:
            text = " ".join(str(error).split())
            if "No active Lifecycle Action" in text:  # answered before: the agent was restarted
                get_logger().info(f"{name}: nothing waits for it")
            else:
                get_logger().warning(f"{name} failed", error=text)
            return False
        return True
