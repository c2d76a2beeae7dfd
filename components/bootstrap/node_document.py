"""The objects that a node boots from, as canonical JSON, and the names under which they lie in S3.

The readers live in the trainer package, which is not imported here: the two meet in these documents only, and
a test parses what is rendered here with the trainer's own models.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SCHEMA_VERSION = 1
METRIC_NAMESPACE = "GpuTraining"
LAUNCHING_HOOK = "launching"
TERMINATING_HOOK = "terminating"
TRAINING_PORT = 29500

CLUSTER_KEY = "cluster.json"


@dataclass(frozen=True)
class NodeFacts:
    """What the nodes of one group are told about where they are. Sizes in GiB, ports are TCP ports."""

    stack: str
    group: str  # its name in the configuration
    auto_scaling_group: str
    region: str
    artifacts_bucket: str
    dataset_buckets: Mapping[str, str]  # dataset -> bucket
    release_sha256: str
    release_version: str
    interpreter: str
    torch_site_packages: str | None  # None: torch comes as the artifact with `torch_sha256`
    torch_sha256: str | None
    instance_type: str
    accelerator: str
    gpu_model: str | None  # None where the group's types differ in it
    gpu_count: int
    gpu_memory_gib: float | None
    efa_count: int
    self_check_level: str
    floors_tflops: Mapping[str, float]
    on_failure: str
    max_replacements: int  # failed boots of the group an hour before its launches are suspended
    log_group: str
    metrics_port: int
    dcgm_names: bool
    read_paths: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # dataset -> read path and folder
    scratch: tuple[str, str] | None = None  # owner of the instance-store disks and where they are mounted
    lustre_key: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict)  # environment variable -> name of the secret
    max_run_hours: float | None = None
    idle_stop_minutes: int | None = None
    runs_topic_arn: str | None = None


@dataclass(frozen=True)
class ClusterGroup:
    """What cluster.json says of one group."""

    auto_scaling_group: str
    max_nodes: int
    prices: Mapping[str, Mapping[str, Any]]  # by instance type, as the trainer's HourlyPrice has it


def node_document(facts: NodeFacts) -> str:
    """The node document's text; equal facts give equal bytes."""
    bucket = facts.artifacts_bucket
    if facts.torch_sha256 is not None:
        torch: dict[str, Any] = {"artifact": _artifact(bucket, facts.torch_sha256)}
    else:
        torch = {"sitePackages": facts.torch_site_packages}
    return canonical_json(
        {
            "schemaVersion": SCHEMA_VERSION,
            "stack": facts.stack,
            "group": facts.group,
            "autoScalingGroup": facts.auto_scaling_group,
            "region": facts.region,
            "artifactsBucket": bucket,
            "datasets": _dataset_locations(facts.dataset_buckets, facts.read_paths),
            "release": {**_artifact(bucket, facts.release_sha256), "version": facts.release_version},
            "interpreter": facts.interpreter,
            "torch": torch,
            "promise": _without_none(
                {
                    "instanceType": facts.instance_type,
                    "accelerator": facts.accelerator,
                    "gpuModel": facts.gpu_model,
                    "gpuCount": facts.gpu_count,
                    "gpuMemoryGib": facts.gpu_memory_gib,
                    "efaCount": facts.efa_count,
                }
            ),
            "selfCheck": {
                "level": facts.self_check_level,
                "floorsTflops": dict(facts.floors_tflops),
                "onFailure": facts.on_failure,
                "maxReplacements": facts.max_replacements,
            },
            "launchingHook": LAUNCHING_HOOK,
            "terminatingHook": TERMINATING_HOOK,
            "metricNamespace": METRIC_NAMESPACE,
            "logGroup": facts.log_group,
            "metricsPort": facts.metrics_port,
            "dcgmNames": facts.dcgm_names,
            "trainingPort": TRAINING_PORT,
            "secrets": dict(facts.secrets),
            **_without_none(
                {
                    "scratch": {"owner": facts.scratch[0], "path": facts.scratch[1]}
                    if facts.scratch
                    else None,
                    "lustreKey": facts.lustre_key,
                    "maxRunHours": facts.max_run_hours,
                    "idleStopMinutes": facts.idle_stop_minutes,
                    "runsTopicArn": facts.runs_topic_arn,
                }
            ),
        }
    )


def cluster_document(
    stack: str,
    region: str,
    artifacts_bucket: str,
    groups: Mapping[str, ClusterGroup],
    dataset_buckets: Mapping[str, str],
) -> str:
    """``cluster.json``: the stack as a researcher's machine sees it, and what changes without a change of nodes.

    List prices belong here: in the node document, whose hash is in the launch template, a new price would replace
    running nodes.
    """
    return canonical_json(
        {
            "schemaVersion": SCHEMA_VERSION,
            "stack": stack,
            "region": region,
            "artifactsBucket": artifacts_bucket,
            "groups": {
                name: {
                    "autoScalingGroup": group.auto_scaling_group,
                    "maxNodes": group.max_nodes,
                    "prices": {type_: dict(price) for type_, price in group.prices.items()},
                }
                for name, group in groups.items()
            },
            "datasets": _dataset_locations(dataset_buckets),
        }
    )


def canonical_json(value: Mapping[str, Any]) -> str:
    """Sorted keys, no spaces, a final newline."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")) + "\n"


def sha256_of(text: str) -> str:
    """The SHA-256 of the text's UTF-8 bytes, in hex."""
    return hashlib.sha256(text.encode()).hexdigest()


def node_document_key(group: str, text: str) -> str:
    return f"groups/{group}/node-{sha256_of(text)}.json"


def artifact_key(sha256: str) -> str:
    """A tar of the release, the trainer's or torch's: found, and trusted, by its bytes alone."""
    return f"releases/trainer/{sha256}.tar"


def dataset_prefix(dataset: str) -> str:
    return f"datasets/{dataset}/"


def _artifact(bucket: str, sha256: str) -> dict[str, str]:
    return {"uri": f"s3://{bucket}/{artifact_key(sha256)}", "sha256": sha256}


def _dataset_locations(
    buckets: Mapping[str, str], read_paths: Mapping[str, tuple[str, str]] | None = None
) -> dict[str, dict[str, str]]:
    locations = {
        name: {"bucket": bucket, "prefix": dataset_prefix(name), "readPath": "sync"}
        for name, bucket in buckets.items()
    }
    for name, (read_path, folder) in (read_paths or {}).items():
        locations[name] |= {"readPath": read_path, "path": folder}
    return locations


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
