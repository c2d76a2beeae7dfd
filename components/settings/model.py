"""The shape of the configuration: one model a section, every field with its unit and its default as
behaviour.

These models say what a value may be by itself; `rules.py` judges what values may be together. No Pulumi type
occurs here, so that everything downstream of the configuration can be tested with plain values. The
descriptions are what docs/configuration.md prints.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Literal

from pydantic import Field

from .group_model import GpuGroupSettings
from .section import Section
from .storage_model import AccessLogs, DatasetSettings, LustreSettings


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


class ExistingNetwork(Section):
    """A VPC that exists already: the stack adds the nodes' security group to it and nothing else."""

    vpc_id: str = Field(
        pattern=r"^vpc-[0-9a-f]{8,17}$", examples=["vpc-0123456789abcdef0"], description="Id of the VPC."
    )
    subnet_ids: dict[str, str] = Field(
        min_length=1,
        examples=[{"us-east-1a": "subnet-0123456789abcdef0"}],
        description="A private subnet for each of `availabilityZones`. From it nodes reach S3 and the AWS "
        "services that they call, by NAT or by endpoints. Names are resolved by Amazon's own servers "
        "(AmazonProvidedDNS in the VPC's DHCP options): the nodes' security group lets out HTTPS and no DNS to others.",
    )


class NetworkSettings(Section):
    """The VPC: a public and a private subnet in every named zone; nodes live in the private ones."""

    cidr: str = Field(
        default="10.42.0.0/16",
        description="Private address range (RFC 1918) of the VPC, /16 to /21. Every zone owns a slot of "
        "it, by the zone's letter. With `existing`: the range of that VPC.",
    )
    availability_zones: list[str] = Field(
        min_length=1,
        examples=[["us-east-1a", "us-east-1b"]],
        description="Availability zones of `region` (no local zones), all by name or all by id such as use1-az1. "
        "Adding or removing one leaves the others' subnets as they are; going from names to ids replaces them all.",
    )
    existing: ExistingNetwork | None = Field(
        default=None, description="Use this VPC. Absent: the stack makes its own."
    )
    nat: Literal["none", "single", "per-az"] = Field(
        default="single",
        description="NAT gateways. `none`: nodes reach S3 and the AWS services that they call through endpoints, and "
        "nothing else; `single`: one for all zones; `per-az`: one a zone, so that no zone depends on "
        "another. Through it nodes reach the internet by HTTPS alone: no plain HTTP, as Ubuntu's package mirrors speak "
        "it, and no SSH. Not with `existing`.",
    )
    endpoints: list[str] = Field(
        default_factory=list,
        examples=[["ecr.api", "ecr.dkr"]],
        description="Interface endpoints of further AWS services, by the last part of their service name, beside those "
        "that nodes need without NAT. Not with `existing`.",
    )
    flow_log_retention_days: int | None = Field(
        default=None,
        description="Days that VPC flow logs are kept in CloudWatch. Absent: no flow logs. Not with `existing`.",
    )

    @property
    def network(self) -> IPv4Network:
        return IPv4Network(self.cidr)


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

    run_emails: list[str] = Field(
        default_factory=list,
        description="Addresses that are told when a run finished or failed, and what it cost; each must confirm "
        "once by mail.",
    )

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
    dcgm_names: bool = Field(
        default=False,
        description="Nodes export their GPU series under dcgm-exporter's names too, for dashboards made for those.",
    )
    alerts: Alerts = Field(default=Alerts(), description="Who is told.")


class Budget(Section):
    """An AWS budget over what carries the stack's tag. AWS's billing data is hours old: it tells and stops late."""

    monthly_usd: float = Field(
        gt=0, examples=[20000.0], description="What the stack may cost in a month, USD."
    )
    emails: list[str] = Field(
        min_length=1,
        max_length=10,
        examples=[["gpu-budget@example.com"]],
        description="Addresses that are told at 80 % and at 100 %, and when the month's forecast passes 100 %.",
    )
    stop_at_percent: int | None = Field(
        default=None,
        ge=1,
        le=1000,
        description="Share of the month's budget, in %, at which all groups are set to zero nodes and their launches "
        "suspended. Absent: nothing is stopped.",
    )


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
    access_logs: AccessLogs = Field(
        default=AccessLogs(), description="Logs of who reads and writes the buckets."
    )
    lustre: LustreSettings | None = Field(
        default=None, description="A parallel file system for datasets with `readPath: lustre`. Absent: none."
    )
    gpu_groups: list[GpuGroupSettings] = Field(min_length=1, description="The groups of GPU nodes.")
    self_check: SelfCheck = Field(
        default=SelfCheck(), description="What a node must show before it may train."
    )
    monitoring: MonitoringSettings = Field(
        default=MonitoringSettings(), description="Logs, alarms, dashboards."
    )

    secrets: dict[str, str] = Field(
        default_factory=dict,
        examples=[{"HF_TOKEN": "research/hugging-face"}],
        description="Secrets of the training, by environment variable: names in AWS Secrets Manager. Nodes fetch the "
        "values when a run starts; they are in no document and in no log.",
    )
    budget: Budget | None = Field(default=None, description="An AWS budget. Absent: none.")
    trainer_version: str | None = Field(
        default=None,
        examples=["1.4.0"],
        description="An older one of the five newest trainer releases, to roll back. Absent: the newest.",
    )
    suppress_validators: dict[str, str] = Field(
        default_factory=dict,
        examples=[{"zone-offers-the-type": "TICKET-7: a new zone, seen in the console"}],
        description="Validators whose findings are left out, by id, each with the reason. docs/validators.md lists "
        "them.",
    )

    @property
    def account_id(self) -> str:
        return self.allowed_account_ids[0]

    @property
    def base_name(self) -> str:
        return f"{self.name_prefix}-{self.stack}"
