"""What FSx for Lustre offers, and what a stack's file system is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from components.names import StackNames, stack_names
from components.settings import Settings
from components.settings.storage_model import LustreSettings

GIB_PER_TIB = 1024
SCRATCH_2_MBPS_PER_TIB = 200  # FSx for Lustre user guide, performance (2026); not a choice
PERSISTENT_2_DEFAULT_MBPS_PER_TIB = 125
UNLINKED_BACKUP_RETENTION_DAYS = 7
# Of 2.12 and 2.15, which links to S3 need, the one that new systems get (botocore fsx model, 2026).
LUSTRE_VERSION = "2.15"
DATASETS_FOLDER = "/datasets"  # in the file system; each dataset's folder below it is one association
MOUNT_POINT = "/mnt/lustre"  # on nodes


@dataclass(frozen=True)
class DatasetLink:
    """One data repository association: a dataset's folder in its bucket, shown as a folder of the file system."""

    dataset: str
    bucket: str
    data_repository_path: str  # s3://bucket/prefix/
    file_system_path: str  # absolute in the file system; those of two links never overlap


@dataclass(frozen=True)
class LustrePlan:
    """One file system in FSx's own terms. Capacity in GiB, throughput in MB/s for each TiB of it."""

    name: str
    zone: str
    deployment_type: str
    capacity_gib: int
    throughput_mbps_per_tib: int
    per_unit_storage_throughput: int | None  # as FSx takes it: a choice of PERSISTENT_2 only
    metadata_iops: int | None  # None: as the capacity gives
    efa: bool
    takes_kms_key: bool
    backup_retention_days: int | None  # None: FSx makes no backups of its kind, and refuses the setting
    retain: bool
    links: tuple[DatasetLink, ...]
    artifacts_bucket: str
    document_key: str  # the object there by which nodes learn how the file system is mounted

    @property
    def is_persistent(self) -> bool:
        return self.deployment_type == "PERSISTENT_2"

    @property
    def throughput_mbps(self) -> float:
        """Of all its disks together, MB/s."""
        return self.capacity_gib / GIB_PER_TIB * self.throughput_mbps_per_tib


def plan_lustre(settings: Settings) -> LustrePlan | None:
    """The file system of sound settings; None where they have none."""
    names = stack_names(settings)
    lustre, document_key = settings.lustre, names.lustre_key
    if lustre is None or document_key is None:
        return None
    persistent = lustre.deployment == "PERSISTENT_2"
    links = _links(settings, names)
    return LustrePlan(
        name=f"{names.base_name}-lustre",
        zone=lustre.zone,
        deployment_type=lustre.deployment,
        capacity_gib=lustre.capacity_gib,
        throughput_mbps_per_tib=_throughput(lustre),
        per_unit_storage_throughput=_throughput(lustre) if persistent else None,
        metadata_iops=lustre.metadata_iops,
        efa=lustre.efa,
        takes_kms_key=persistent,
        # What S3 holds can be loaded again; FSx refuses backups of linked and of scratch systems.
        backup_retention_days=(0 if links else UNLINKED_BACKUP_RETENTION_DAYS) if persistent else None,
        retain=lustre.retain,
        links=links,
        artifacts_bucket=names.artifacts_bucket,
        document_key=document_key,
    )


def node_folder(dataset: str) -> str:
    """Where nodes find the dataset's versions."""
    return f"{MOUNT_POINT}{DATASETS_FOLDER}/{dataset}"


def _throughput(lustre: LustreSettings) -> int:
    if lustre.deployment == "SCRATCH_2":
        return SCRATCH_2_MBPS_PER_TIB
    return lustre.throughput_mbps_per_tib or PERSISTENT_2_DEFAULT_MBPS_PER_TIB


def _links(settings: Settings, names: StackNames) -> tuple[DatasetLink, ...]:
    return tuple(
        DatasetLink(
            dataset=dataset.name,
            bucket=names.dataset_buckets[dataset.name],
            data_repository_path=f"s3://{names.dataset_buckets[dataset.name]}/datasets/{dataset.name}/",
            file_system_path=f"{DATASETS_FOLDER}/{dataset.name}",
        )
        for dataset in settings.datasets
        if dataset.read_path == "lustre"
    )
