"""The node document: what a node is told about its environment (facts only: no training settings, no secret).

The infrastructure program writes it to ``groups/<group>/node-<sha256>.json`` in the artifacts bucket; the
node's user data fetches it, compares its SHA-256 with the one in the user data, and hands it to the agent.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .base import ProgramDocument

SCHEMA_VERSION = 1

Sha256 = Field(pattern=r"^[0-9a-f]{64}$")


class Artifact(ProgramDocument):
    """An immutable object in S3 that is trusted only after its bytes hash to ``sha256``."""

    uri: str = Field(pattern=r"^s3://[^/]+/.+$")
    sha256: str = Sha256


class Release(Artifact):
    """The trainer's wheels for this node's interpreter, as one tar."""

    version: str


class TorchSource(ProgramDocument):
    """Where torch comes from: a site-packages folder on the image, or a second hashed artifact."""

    site_packages: str | None = None
    artifact: Artifact | None = None


class Promise(ProgramDocument):
    """What the instance type promises; the self-check holds the node to it.

    ``accelerator`` is ``none`` on images without a GPU driver (the local cloud): device checks then report
    "does not apply" and never zero.
    """

    instance_type: str
    accelerator: Literal["nvidia", "none"]
    gpu_model: str | None = None
    gpu_count: int = Field(ge=0)
    gpu_memory_gib: float | None = None
    efa_count: int = Field(default=0, ge=0)


class SelfCheckSettings(ProgramDocument):
    level: Literal["quick", "full"] = "quick"
    floors_tflops: dict[str, float] = Field(default_factory=dict)  # dtype -> TFLOPS, before the built-in ones
    on_failure: Literal["replace", "report"] = "replace"
    # Failed boots of the group within an hour; one more suspends its launches.
    max_replacements: int = Field(default=3, ge=0)


class DatasetLocation(ProgramDocument):
    """Where a dataset lies and how the node reads it.

    ``sync``: copied to the node; ``mountpoint`` and ``lustre``: versions are folders below ``path``, mounted at
    boot, read-only.
    """

    bucket: str
    prefix: str  # "datasets/<name>/", versions below it
    read_path: Literal["sync", "mountpoint", "lustre"] = "sync"
    path: str | None = None  # absolute; with mountpoint and lustre only


class Scratch(ProgramDocument):
    """The instance-store disks: who makes a file system of them, and where it is mounted.

    ``image``: the image mounts them at ``path`` itself; ``node``: the node makes a RAID0 of them at each boot.
    """

    owner: Literal["image", "node"]
    path: str


class NodeDocument(ProgramDocument):
    schema_version: int = SCHEMA_VERSION
    stack: str
    group: str  # the group's name in the configuration
    auto_scaling_group: str  # the Auto Scaling group's name in AWS
    region: str
    artifacts_bucket: str
    datasets: dict[str, DatasetLocation] = Field(default_factory=dict)
    release: Release
    interpreter: str  # path of the image's Python, for example /opt/pytorch/bin/python3
    torch: TorchSource
    promise: Promise
    self_check: SelfCheckSettings = SelfCheckSettings()
    launching_hook: str
    terminating_hook: str
    metric_namespace: str = "GpuTraining"  # CloudWatch namespace of the counts behind the alarms
    log_group: str
    metrics_port: int = Field(default=9400, ge=1024, le=65535)
    dcgm_names: bool = False  # GPU series under dcgm-exporter's names as well
    training_port: int = Field(default=29500, ge=1024, le=65535)  # torchrun's master port, members only
    scratch: Scratch | None = None  # None: no instance store, or nobody uses it
    lustre_key: str | None = None  # object in the artifacts bucket that says how the file system is mounted
    secrets: dict[str, str] = Field(default_factory=dict)  # environment variable -> name in Secrets Manager
    max_run_hours: float | None = None  # of training, after which a run saves, stops and releases its nodes
    idle_stop_minutes: int | None = (
        None  # not None: the node counts whether it trains, for the alarm that stops it
    )
    runs_topic_arn: str | None = None  # where the leader tells that a run finished or failed
