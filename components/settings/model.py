"""The shape of the configuration: one model a section, every field with its unit and its default as
behaviour.

These models say what a value may be by itself; `rules.py` judges what values may be together. No Pulumi type
occurs here, so that everything downstream of the configuration can be tested with plain values. The
descriptions are what docs/configuration.md prints.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

NAME = r"^[a-z][a-z0-9-]{0,30}$"


class BrokenField(AttributeError):
    """A field was read that is absent because its value in the configuration is at fault."""


class Section(BaseModel):
    """Strict: "3" is no number and unknown keys are faults."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        alias_generator=to_camel,
        populate_by_name=True,
        allow_inf_nan=False,
    )

    if not TYPE_CHECKING:  # for the type checker every field is there

        def __getattr__(self, name: str) -> Any:
            """Called for absent attributes only."""
            if name in type(self).model_fields:
                raise BrokenField(f"{type(self).__name__}.{name} has no sound value")
            return super().__getattr__(name)


class Kms(Section):
    """Who holds the key that encrypts buckets and volumes."""

    mode: Literal["create", "existing", "aws-managed"] = Field(
        default="aws-managed",
        description="`create` makes a key of the stack's own, `existing` uses `keyArn`, `aws-managed` "
        "uses the keys that AWS keeps for each service at no charge.",
    )
    key_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[0-9a-z-]+$",
        examples=["arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"],
        description="The key of mode `existing`, and of no other mode.",
    )


class NetworkSettings(Section):
    """The VPC: a public and a private subnet in every named zone; nodes live in the private ones."""

    cidr: str = Field(
        default="10.42.0.0/16",
        description="Private address range (RFC 1918) of the VPC, /16 to /21. Every zone owns a slot of "
        "it, by the zone's letter.",
    )
    availability_zones: list[str] = Field(
        min_length=1,
        examples=[["us-east-1a", "us-east-1b"]],
        description="Availability zones of `region` (no local zones). Adding or removing one leaves the "
        "others' subnets as they are.",
    )
    nat: Literal["none", "single", "per-az"] = Field(
        default="single",
        description="NAT gateways. `none`: nodes reach S3 and the AWS services that they call through endpoints, and "
        "nothing else; `single`: one for all zones; `per-az`: one a zone, so that no zone depends on "
        "another.",
    )
    flow_log_retention_days: int | None = Field(
        default=None, description="Days that VPC flow logs are kept in CloudWatch. Absent: no flow logs."
    )

    @property
    def network(self) -> IPv4Network:
        return IPv4Network(self.cidr)


class DatasetSettings(Section):
    """One bucket for one dataset and its versions."""

    name: str = Field(
        pattern=NAME, examples=["shapes"], description="Name of the dataset, and part of the bucket's name."
    )
    retain: bool = Field(
        default=True,
        description="`true`: the bucket is protected from deletion and stays when the stack goes; "
        "`false`: it goes with the stack, contents included.",
    )
    noncurrent_expiry_days: int = Field(
        default=30, ge=1, description="Days after which overwritten or deleted objects are gone for good."
    )


class Purchase(Section):
    """How capacity is bought. The default buys every node on demand."""

    on_demand_base: int = Field(
        default=0,
        ge=0,
        description="The first nodes of the group, bought on demand whatever `spotPercent` says.",
    )
    spot_percent: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Share of the nodes above `onDemandBase` that is bought as spot, in %.",
    )
    strategy: Literal["price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized"] = (
        Field(
            default="price-capacity-optimized",
            description="Spot allocation strategy; `capacity-optimized-prioritized` honours the order of "
            "`instanceTypes`.",
        )
    )
    max_price_usd_per_hour: float | None = Field(
        default=None,
        gt=0,
        description="Highest price for a spot node. Absent: the on-demand price is the limit.",
    )


class Image(Section):
    """The machine image of a group: its profile, and exactly one of `amiId` and `ssmParameter`."""

    profile: str = Field(
        examples=["dlami-pytorch-ubuntu-24.04"],
        description="Row of the catalog's image profiles: what the image provides (interpreter, torch, "
        "root device).",
    )
    ami_id: str | None = Field(
        default=None,
        pattern=r"^ami-[0-9a-f]{8,17}$",
        examples=["ami-0123456789abcdef0"],
        description="Image id. Nothing changes until this value does.",
    )
    ssm_parameter: str | None = Field(
        default=None,
        pattern=r"^/[A-Za-z0-9_.\-/]+$",
        examples=["/gpu-training/images/pytorch"],
        description="Name of the SSM parameter that holds the image id; EC2 reads it at each launch, so that a new "
        "value there reaches new nodes only.",
    )


class GpuGroupSettings(Section):
    """One Auto Scaling group of GPU nodes that train together."""

    name: str = Field(
        pattern=NAME,
        examples=["trainers"],
        description="Name of the group; unique in the stack and fixed for its life.",
    )
    instance_types: list[str] = Field(
        min_length=1,
        max_length=40,
        examples=[["p5.48xlarge"]],
        description="EC2 instance types of the catalog, the preferred one first. Several types of one "
        "group have the same GPUs and the same network interfaces.",
    )
    zones: list[str] | None = Field(
        default=None,
        min_length=1,
        examples=[["us-east-1a"]],
        description="Zones of the group, out of `network.availabilityZones`. Absent: all of them. A group "
        "with EFA or a cluster placement has exactly one.",
    )
    min_nodes: int = Field(default=0, ge=0, description="The group is never scaled in below this.")
    max_nodes: int = Field(ge=1, examples=[4], description="The group is never scaled out above this.")
    desired_nodes: int | None = Field(
        default=None,
        ge=0,
        description="Nodes at creation; afterwards the number belongs to whoever scales the group. "
        "Absent: `minNodes`.",
    )
    purchase: Purchase = Field(default=Purchase(), description="How capacity is bought.")
    efa: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Elastic Fabric Adapters. `auto`: on when every instance type has them and the group "
        "has one zone; `on`: a fault when that is not so; `off`: a plain network interface.",
    )
    placement: Literal["cluster", "none"] = Field(
        default="none",
        description="`cluster`: nodes close together in one placement group, for the shortest network.",
    )
    image: Image = Field(description="The machine image.")
    root_volume_gib: int = Field(
        default=200, ge=30, le=65536, description="Encrypted gp3 root volume of a node, GiB."
    )
    rollout: Literal["manual", "refresh"] = Field(
        default="manual",
        description="What a new launch template does to running nodes. `manual`: nothing, only new nodes "
        "have it; `refresh`: an instance refresh replaces them, runs go on from their last "
        "checkpoint.",
    )


class SelfCheck(Section):
    """What a node must show before it may train."""

    level: Literal["quick", "full"] = Field(
        default="quick", description="`quick`: devices and a short matmul benchmark; `full`: the long one."
    )
    floors_tflops: dict[str, float] = Field(
        default_factory=dict,
        examples=[{"bf16": 600.0}],
        description="Lowest acceptable matmul speed by data type, TFLOPS. Absent: the trainer's own "
        "floors by GPU.",
    )
    on_failure: Literal["replace", "report"] = Field(
        default="replace",
        description="`replace`: the launch is abandoned and the group starts another node; `report`: the "
        "node joins and the fault is only reported.",
    )
    max_replacements: int = Field(
        default=3,
        ge=0,
        le=100,
        description="Failed self-checks of a group in one hour after which its launches are suspended and "
        "an alarm is raised.",
    )


class Alerts(Section):
    """Who is told."""

    emails: list[str] = Field(
        default_factory=list,
        description="Addresses that subscribe to the topic; each must confirm once by mail.",
    )
    sns_topic_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]+$",
        examples=["arn:aws:sns:us-east-1:123456789012:pages"],
        description="An existing topic for all alarms. Absent: the stack makes its own.",
    )


class MonitoringSettings(Section):
    """Logs, alarms, and Prometheus with Grafana where there is a Kubernetes cluster for them."""

    cluster: Literal["none", "existing"] = Field(
        default="none",
        description="`existing`: the kube-prometheus-stack goes into the Kubernetes cluster that "
        "`kubeconfig` reaches; `none`: CloudWatch only.",
    )
    kubeconfig: str | None = Field(
        default=None, min_length=1, repr=False, description="Contents of a kubeconfig file, stored encrypted."
    )
    retention_days: int = Field(default=30, description="Days that the nodes' logs are kept in CloudWatch.")
    metrics_port: int = Field(
        default=9400, ge=1024, le=65535, description="TCP port of every node's metrics exporter."
    )
    alerts: Alerts = Field(default=Alerts(), description="Who is told.")


class Settings(Section):
    """The whole project namespace `gpu-training`."""

    stack: str
    region: str = Field(
        pattern=r"^[a-z]{2}(-[a-z]+)+-\d$",
        examples=["us-east-1"],
        description="AWS region of everything in the stack.",
    )
    allowed_account_ids: list[str] = Field(
        min_length=1,
        examples=[["123456789012"]],
        description="AWS accounts that the stack may touch; any other is refused before the first call. "
        "The first one is part of the bucket names. Write them in quotes.",
    )
    name_prefix: str = Field(
        default="gputrain",
        pattern=r"^[a-z][a-z0-9-]{1,15}$",
        examples=["gputrain"],
        description="First part of every name; bucket names are shared by all of AWS, so choose your own.",
    )
    tags: dict[str, str] = Field(
        default_factory=dict,
        examples=[{"team": "vision"}],
        description="Tags on everything that can have tags.",
    )
    permission_boundary_arn: str | None = Field(
        default=None,
        pattern=r"^arn:aws[a-z-]*:iam::(\d{12}|aws):policy/.+$",
        examples=["arn:aws:iam::123456789012:policy/boundary"],
        description="IAM policy that bounds every role of the stack. Absent: no boundary.",
    )
    kms: Kms = Field(default=Kms(), description="Encryption keys.")
    network: NetworkSettings = Field(description="The VPC.")
    datasets: list[DatasetSettings] = Field(default_factory=list, description="Dataset buckets.")
    gpu_groups: list[GpuGroupSettings] = Field(min_length=1, description="The groups of GPU nodes.")
    self_check: SelfCheck = Field(
        default=SelfCheck(), description="What a node must show before it may train."
    )
    monitoring: MonitoringSettings = Field(
        default=MonitoringSettings(), description="Logs, alarms, dashboards."
    )

    @property
    def account_id(self) -> str:
        return self.allowed_account_ids[0]

    @property
    def base_name(self) -> str:
        return f"{self.name_prefix}-{self.stack}"
