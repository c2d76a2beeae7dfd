"""The shape of the configuration: one model a section, every field with its unit and its default as behaviour.

These models say what a value may be by itself; `rules.py` judges what values may be together. No Pulumi type
occurs here, so that everything downstream of the configuration can be tested with plain values.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NAME = r"^[a-z][a-z0-9-]{0,30}$"


class Section(BaseModel):
    """Strict: "3" is no number and unknown keys are faults."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, alias_generator=to_camel, populate_by_name=True
    )


class Kms(Section):
    """Encryption keys. Exactly one way: `mode: create`, `mode: existing` with `keyArn`, or `mode: aws-managed`."""

    mode: Literal["create", "existing", "aws-managed"] = "aws-managed"
    key_arn: str | None = None


class NetworkSettings(Section):
    cidr: str = "10.42.0.0/16"
    availability_zones: list[str] = Field(min_length=1)  # caller's order is kept; a zone's place fixes its subnets
    nat: Literal["none", "single", "per-az"] = "single"
    flow_log_retention_days: int | None = None  # none: no flow logs

    @property
    def network(self) -> IPv4Network:
        return IPv4Network(self.cidr)


class DatasetSettings(Section):
    name: str = Field(pattern=NAME)
    retain: bool = True  # the bucket is protected and stays when the stack goes
    noncurrent_expiry_days: int = Field(default=30, ge=1)


class Purchase(Section):
    """How capacity is bought: the first `on_demand_base` nodes on demand, of the rest `spot_percent` % as spot."""

    on_demand_base: int = Field(default=0, ge=0)
    spot_percent: int = Field(default=0, ge=0, le=100)
    strategy: Literal["price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized"] = (
        "price-capacity-optimized"
    )
    max_price_usd_per_hour: float | None = Field(default=None, gt=0)  # none: the on-demand price is the limit


class Image(Section):
    """The machine image; exactly one of `ami_id` and `ssm_parameter`."""

    profile: str  # a row of the catalog's image profiles
    ami_id: str | None = Field(default=None, pattern=r"^ami-[0-9a-f]{8,17}$")
    ssm_parameter: str | None = Field(default=None, pattern=r"^/[A-Za-z0-9_.\-/]+$")


class GpuGroupSettings(Section):
    name: str = Field(pattern=NAME)
    instance_types: list[str] = Field(min_length=1, max_length=40)
    zones: list[str] | None = None  # none: all zones of the network; an EFA group has exactly one
    min_nodes: int = Field(default=0, ge=0)
    max_nodes: int = Field(ge=1)
    desired_nodes: int | None = Field(default=None, ge=0)  # at creation only; none: min_nodes
    purchase: Purchase = Purchase()
    efa: Literal["auto", "on", "off"] = "auto"  # auto: on when every instance type has it and one zone is given
    placement: Literal["cluster", "none"] = "none"
    image: Image
    root_volume_gib: int = Field(default=200, ge=30, le=65536)
    rollout: Literal["manual", "refresh"] = "manual"


class SelfCheck(Section):
    level: Literal["quick", "full"] = "quick"
    floors_tflops: dict[str, float] = Field(default_factory=dict)
    on_failure: Literal["replace", "report"] = "replace"
    max_replacements: int = Field(default=3, ge=0, le=100)  # an hour, then launches are suspended


class Alerts(Section):
    emails: list[str] = Field(default_factory=list)
    sns_topic_arn: str | None = None  # none: the stack makes its own topic


class MonitoringSettings(Section):
    cluster: Literal["none", "existing"] = "none"  # existing: a Kubernetes cluster, reached by `kubeconfig`
    kubeconfig: str | None = None  # a secret; never part of Settings' repr
    retention_days: int = 30
    metrics_port: int = Field(default=9400, ge=1024, le=65535)
    alerts: Alerts = Alerts()


class Settings(Section):
    """The whole project namespace `gpu-training`."""

    stack: str
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")
    allowed_account_ids: list[str] = Field(min_length=1)  # the first one is part of the bucket names
    name_prefix: str = Field(default="gputrain", pattern=r"^[a-z][a-z0-9-]{1,15}$")
    tags: dict[str, str] = Field(default_factory=dict)
    permission_boundary_arn: str | None = None
    kms: Kms = Kms()
    network: NetworkSettings
    datasets: list[DatasetSettings] = Field(default_factory=list)
    gpu_groups: list[GpuGroupSettings] = Field(min_length=1)
    self_check: SelfCheck = SelfCheck()
    monitoring: MonitoringSettings = MonitoringSettings()

    @property
    def account_id(self) -> str:
        return self.allowed_account_ids[0]

    @property
    def base_name(self) -> str:
        return f"{self.name_prefix}-{self.stack}"
