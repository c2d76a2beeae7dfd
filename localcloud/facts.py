"""What a live local stack shows of itself, asked as a researcher and an operator would: S3, Auto Scaling, the run.

Nothing is taken from the driver's own books: the summary is only worth something if it reads what a node, a group
and a bucket really say.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.exceptions import ClientError
from trainer.contracts import keys
from trainer.contracts.manifests import CheckpointManifest, LatestPointer
from trainer.contracts.run import RunConfig, RunResult

from .summary import CheckpointSummary, LossSummary, NodeSelfCheck, NodeSummary

ACCOUNT = "123456789012"  # moto's


@dataclass(frozen=True)
class GroupState:
    name: str  # in the configuration
    auto_scaling_group: str
    desired: int
    in_service: tuple[str, ...]  # instance ids
    lifecycles: dict[str, str]  # instance id -> on-demand | spot
    launches_suspended: bool


def client(service: str, endpoint: str, region: str) -> Any:
    """A boto3 client for the local cloud; its credentials open nothing but the emulation on loopback."""
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id="local",
        aws_secret_access_key="local",  # noqa: S106 - no secret: it opens nothing
    )


class Facts:
    def __init__(self, endpoint: str, region: str, artifacts_bucket: str) -> None:
        self.bucket = artifacts_bucket
        self.s3 = client("s3", endpoint, region)
        self.autoscaling = client("autoscaling", endpoint, region)
        self.ec2 = client("ec2", endpoint, region)

    def get(self, key: str) -> bytes | None:
        try:
            body: bytes = self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()
            return body
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise

    def group(self, name: str, auto_scaling_group: str) -> GroupState:
        answer = self.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[auto_scaling_group])
        found = answer["AutoScalingGroups"][0]
        in_service = tuple(
            sorted(i["InstanceId"] for i in found["Instances"] if i["LifecycleState"] == "InService")
        )
        lifecycles: dict[str, str] = {}
        if in_service:
            reservations = self.ec2.describe_instances(InstanceIds=list(in_service))["Reservations"]
            for instance in (i for r in reservations for i in r["Instances"]):
                lifecycles[instance["InstanceId"]] = instance.get("InstanceLifecycle", "on-demand")
        suspended = {process["ProcessName"] for process in found.get("SuspendedProcesses", [])}
        return GroupState(
            name, auto_scaling_group, found["DesiredCapacity"], in_service, lifecycles, "Launch" in suspended
        )

    def node(self, group: GroupState, instance_id: str) -> NodeSummary:
        text = self.get(keys.boot_selfcheck(group.name, instance_id))
        check = NodeSelfCheck("unknown", None, None)
        if text is not None:
            report = json.loads(text)
            check = NodeSelfCheck(report["verdict"], report.get("seconds"), report.get("matmulTflops"))
        return NodeSummary(instance_id, group.name, group.lifecycles.get(instance_id, "on-demand"), check)

    def selfcheck_seconds(self, group: str, instance_id: str) -> float:
        """0 where the node left no report."""
        text = self.get(keys.boot_selfcheck(group, instance_id))
        return 0.0 if text is None else float(json.loads(text).get("seconds") or 0.0)

    def run_config(self, run: str) -> RunConfig | None:
        text = self.get(keys.run_config(run))
        return None if text is None else RunConfig.from_json(text)

    def run_result(self, run: str) -> RunResult | None:
        text = self.get(keys.result(run))
        return None if text is None else RunResult.from_json(text)

    def loss(self, run: str) -> LossSummary:
        result = self.run_result(run)
        if result is None:
            return LossSummary(None, None, 0)
        return LossSummary(result.first_loss, result.last_loss, result.step)

    def checkpoint(self, run: str) -> CheckpointSummary:
        """Follow `latest` and hash every byte it leads to; anything missing or unequal is "not verified"."""
        pointer_text = self.get(keys.latest(run))
        if pointer_text is None:
            return CheckpointSummary(None, None, False)
        pointer = LatestPointer.from_json(pointer_text)
        manifest_text = self.get(keys.checkpoint(run, pointer.step, "manifest.json"))
        if manifest_text is None or hashlib.sha256(manifest_text).hexdigest() != pointer.manifest_sha256:
            return CheckpointSummary(pointer.step, None, False)
        manifest = CheckpointManifest.from_json(manifest_text)
        verified = True
        for file in manifest.files:
            body = self.get(keys.checkpoint(run, pointer.step, file.name))
            verified = verified and body is not None and hashlib.sha256(body).hexdigest() == file.sha256
        return CheckpointSummary(pointer.step, pointer.manifest_sha256, verified)

    def events(self, run: str, generation: int) -> list[dict[str, Any]]:
        """Rank 0's event lines of one generation, as its agent uploaded them; empty where there are none."""
        prefix = f"runs/{run}/logs/gen-{generation:04d}/"
        listed = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        bodies = [self.get(entry["Key"]) or b"" for entry in listed if keys.is_events_segment(entry["Key"])]
        return [json.loads(line) for line in b"".join(bodies).splitlines() if line.strip()]
