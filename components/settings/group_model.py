"""The shape of a GPU group's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import NAME, Section

UTC_TIME = r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2})?Z$"


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
    capacity_rebalance: bool | None = Field(
        default=None,
        description="`true`: EC2 starts a replacement when a spot node is likely to be interrupted, before it "
        "is; for a while the group has a node more. Absent: on for spot groups without EFA, off for groups "
        "with EFA, whose world a node from outside would disturb.",
    )


class Reservation(Section):
    """Capacity that was reserved before: the group launches into it and nowhere else."""

    kind: Literal["on-demand", "capacity-block"] = Field(
        description="`on-demand`: an on-demand capacity reservation; `capacity-block`: a block for ML, paid "
        "up front, which EC2 empties from 30 minutes before its end.",
    )
    id: str = Field(
        pattern=r"^cr-[0-9a-f]{8,17}$",
        examples=["cr-0123456789abcdef0"],
        description="Id of the reservation.",
    )
    zone: str = Field(
        examples=["us-east-1a"], description="The zone it lies in, and with it the group's only zone."
    )
    count: int = Field(ge=1, examples=[4], description="Instances it holds; `maxNodes` is not above it.")
    starts_at: str | None = Field(
        default=None,
        pattern=UTC_TIME,
        examples=["2027-01-11T11:30:00Z"],
        description="Start of a capacity block, UTC: the group is empty before and is scaled out then.",
    )
    ends_at: str | None = Field(
        default=None,
        pattern=UTC_TIME,
        examples=["2027-01-18T11:30:00Z"],
        description="End of a capacity block, UTC: the group is scaled in 45 minutes before, so that runs "
        "save before EC2 takes the nodes.",
    )


class Schedule(Section):
    """A change of the group's size at set times."""

    name: str = Field(pattern=NAME, examples=["evening"], description="Name of the schedule.")
    recurrence: str = Field(
        examples=["0 20 * * 1-5"],
        description="Cron text of five fields: minute, hour, day, month, weekday.",
    )
    time_zone: str = Field(
        default="Etc/UTC", examples=["Europe/Berlin"], description="IANA time zone of `recurrence`."
    )
    desired_nodes: int | None = Field(
        default=None, ge=0, description="Nodes from then on. Absent: as they are."
    )
    min_nodes: int | None = Field(default=None, ge=0, description="New least size. Absent: as it is.")
    max_nodes: int | None = Field(default=None, ge=0, description="New largest size. Absent: as it is.")


class PinnedImage(Section):
    """The image that a parameter named on a day; `make pin-image` writes it."""

    ami_id: str = Field(
        pattern=r"^ami-[0-9a-f]{8,17}$", examples=["ami-0123456789abcdef0"], description="Image id."
    )
    name: str = Field(min_length=1, description="The image's own name, for people.")
    date: str = Field(
        pattern=r"^\d{4}-\d{2}-\d{2}$", examples=["2026-11-30"], description="Day on which it was pinned."
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
        description="Name of the SSM parameter that holds the image id. Without `pinned` EC2 reads it at each launch, "
        "so that a new value there reaches new nodes only.",
    )
    pinned: PinnedImage | None = Field(
        default=None,
        description="What `ssmParameter` held on a day: nodes launch with this image until it is pinned anew.",
    )

    @property
    def launched_id(self) -> str:
        """What a launch template says: an image id, or resolve:ssm:<parameter>, which EC2 reads at each launch."""
        if self.ami_id is not None:
            return self.ami_id
        return self.pinned.ami_id if self.pinned is not None else f"resolve:ssm:{self.ssm_parameter}"


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
        "group have the same GPUs.",
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
    reservation: Reservation | None = Field(
        default=None, description="Reserved capacity that the group launches into. Absent: none."
    )
    fallback_group: str | None = Field(
        default=None,
        examples=["on-demand"],
        description="An on-demand group that an alarm scales out by as many nodes as this spot group lacks, "
        "and in again when it lacks none. Both are groups of the same run. A mix of spot and on demand in one "
        "group does not do this: it never buys on demand what it cannot get as spot.",
    )
    schedules: list[Schedule] = Field(
        default_factory=list,
        description="Changes of size at set times, within `minNodes` and `maxNodes`.",
    )
    idle_stop_minutes: int | None = Field(
        default=None,
        ge=10,
        le=1440,
        description="Minutes, rounded up to five, without any node that trains, prepares to, or boots, after which the "
        "group is scaled to zero; `minNodes` is 0 then. A run that waits for members trains nobody. With a "
        "`fallbackGroup` the nodes of both are meant, and that one goes to its `minNodes`. Absent: never.",
    )
    max_run_hours: float | None = Field(
        default=None,
        gt=0,
        le=2160,
        description="Hours of training, over all restarts and resumes, after which a run on this group saves, stops "
        "and releases its nodes as with `onFinish: release`. Absent: no limit.",
    )
    efa: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Elastic Fabric Adapters. `auto`: on when every instance type has them and the group "
        "has one zone; `on`: a fault when that is not so; `off`: a plain network interface.",
    )
    efa_layout: Literal["ip-optimized", "bandwidth-optimized"] = Field(
        default="ip-optimized",
        description="`ip-optimized`: one address a node, every EFA without one; `bandwidth-optimized`: also the "
        "plain interfaces that raise a node's IP bandwidth to its maximum, each with an address of the subnet.",
    )
    placement: str = Field(
        default="none",
        pattern=r"^(cluster|none|pg-[0-9a-f]{8,17})$",
        examples=["cluster"],
        description="`cluster`: nodes close together in one placement group, for the shortest network; `none`; or the "
        "id of a placement group that exists. A change reaches each node at its next boot and replaces none: until "
        "then some nodes are in the placement group and some are not. The one that `cluster` made cannot be deleted "
        "with nodes in it: to leave it, scale to zero first.",
    )
    image: Image = Field(description="The machine image.")
    root_volume_gib: int = Field(
        default=200, ge=30, le=65536, description="Encrypted gp3 root volume of a node, GiB."
    )
    root_volume_iops: int | None = Field(
        default=None,
        examples=[6000],
        description="IOPS of the root volume: 3000 to 80000, and 500 for each GiB at most. Absent: 3000.",
    )
    root_volume_throughput_mibps: int | None = Field(
        default=None,
        examples=[500],
        description="Throughput of the root volume, MiB/s: 125 to 2000, and 0.25 for each IOPS at most. Absent: 125.",
    )
    rollout: Literal["manual", "refresh"] = Field(
        default="manual",
        description="What a new launch template does to running nodes. `manual`: nothing, they get it at their next "
        "boot; `refresh`: an instance refresh replaces them one at a time, each after it saved.",
    )
