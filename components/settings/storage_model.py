"""The shape of what the configuration says about storage."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from .section import NAME, Section


class DatasetSettings(Section):
    """One bucket for one dataset and its versions."""

    name: str = Field(
        pattern=NAME, examples=["shapes"], description="Name of the dataset, and part of the bucket's name."
    )
    retain: bool = Field(
        default=True,
        description="`true`: the bucket is protected, `pulumi destroy` stops at it, and it stays where it is taken out "
        "of the stack; `false`: the explicit switch with which it goes with the stack, contents included. Checkpoints "
        "stay unless every dataset has `false`.",
    )
    noncurrent_expiry_days: int = Field(
        default=30, ge=1, description="Days after which overwritten or deleted objects are gone for good."
    )
    read_path: Literal["sync", "mountpoint", "lustre"] = Field(
        default="sync",
        description="How nodes read it. `sync`: copied to the node, and every shard hashed, before training; "
        "`mountpoint`: through Mountpoint for S3, without a copy; `lustre`: through the stack's file system, which "
        "loads it from the bucket. Without a copy the manifest, every shard's size and its hash as S3 keeps it are "
        "checked, and one shard is read and hashed through the mount.",
    )


class AccessLogs(Section):
    """Server access logs of all buckets, in a bucket of their own."""

    retention_days: int | None = Field(
        default=90, ge=1, description="Days that they are kept. Null: none are written."
    )


class LustreSettings(Section):
    """An FSx for Lustre file system, linked to the buckets of the datasets that are read through it."""

    zone: str = Field(
        examples=["us-east-1a"],
        description="Its zone, out of `network.availabilityZones`; nodes should be in it.",
    )
    deployment: Literal["PERSISTENT_2", "SCRATCH_2"] = Field(
        default="PERSISTENT_2",
        description="`PERSISTENT_2`: replicated in its zone; `SCRATCH_2`: cheaper, lost with a failed server.",
    )
    capacity_gib: int = Field(
        ge=1200, examples=[1200], description="Capacity, GiB: 1200, 2400, or a multiple of 2400."
    )
    throughput_mbps_per_tib: int | None = Field(
        default=None,
        examples=[250],
        description="MB/s for each TiB, of `PERSISTENT_2` only: 125, 250, 500 or 1000. Absent: 125.",
    )
    metadata_iops: int | None = Field(
        default=None,
        examples=[6000],
        description="Metadata operations a second, of `PERSISTENT_2` only: 1500, 3000, 6000, 12000 or a multiple of "
        "12000 up to 192000. Absent: as the capacity gives.",
    )
    efa: bool = Field(
        default=False,
        description="Reached over EFA; decided at creation, of `PERSISTENT_2` only.",
    )
    retain: bool = Field(
        default=True,
        description="`true`: protected, `pulumi destroy` stops at it; `false`: the explicit switch with which it goes "
        "with the stack. Datasets are in their buckets in either case.",
    )
