"""What may be said about datasets, the file system and volumes. Facts: FSx, EBS and S3 user guides as of 2026-11."""

from __future__ import annotations

from collections.abc import Iterator

from .faults import Fault, Path, essential, info, warning
from .group_model import GpuGroupSettings
from .model import Settings
from .storage_model import LustreSettings

# The settings may not import the plan, so these are written there as well; a test compares them.
PERSISTENT_2_MBPS_PER_TIB = (125, 250, 500, 1000)
PERSISTENT_2_DEFAULT_MBPS_PER_TIB = 125
LUSTRE_CAPACITY_STEP_GIB = 2400
LUSTRE_LEAST_CAPACITY_GIB = 1200
METADATA_IOPS = (1500, 3000, 6000, 12000)
METADATA_IOPS_STEP, MAX_METADATA_IOPS = 12000, 192000
MAX_LUSTRE_LINKS = 8
# 19 200 GiB at 250 MB/s/TiB (AWS's PCS guide), 4800 at 1000 as AWS's samples have it: 4.8 GB/s of whole TiB each.
LUSTRE_EFA_LEAST_GIB_TIMES_MBPS_PER_TIB = 4_800_000

GP3_IOPS = (3000, 80000)  # botocore ec2 model, 2026; the 16 000 of before is out of date
GP3_THROUGHPUT_MIBPS = (125, 2000)
GP3_IOPS_PER_GIB = 500
GP3_MIBPS_PER_IOPS = 0.25


def lustre_datasets_have_a_file_system(s: Settings) -> Iterator[Fault]:
    """A dataset with `readPath: lustre` needs the section `lustre`."""
    for place, dataset in enumerate(s.datasets):
        if dataset.read_path == "lustre" and s.lustre is None:
            yield Fault(
                ("datasets", place, "readPath"),
                "lustre, but the stack has no file system",
                "add the section lustre, or write sync",
            )


@warning
def lustre_serves_a_dataset(s: Settings) -> Iterator[Fault]:
    """A file system that no dataset is read through only costs money."""
    if s.lustre is not None and not any(dataset.read_path == "lustre" for dataset in s.datasets):
        yield Fault(
            ("lustre",),
            "no dataset is read through the file system",
            "write readPath: lustre at a dataset, or remove the section",
        )


def lustre_links_at_most_eight_datasets(s: Settings) -> Iterator[Fault]:
    """FSx takes 8 data repository associations a file system."""
    linked = [place for place, dataset in enumerate(s.datasets) if dataset.read_path == "lustre"]
    for place in linked[MAX_LUSTRE_LINKS:]:
        yield Fault(
            ("datasets", place, "readPath"),
            f"dataset {MAX_LUSTRE_LINKS + 1} or later that is read through the file system",
            f"FSx links {MAX_LUSTRE_LINKS} at most: read the others by sync or mountpoint",
        )


@essential
def lustre_zone_is_of_the_network(s: Settings) -> Iterator[Fault]:
    """A file system lies in one subnet of the stack."""
    zones = s.network.availability_zones
    if s.lustre is not None and s.lustre.zone not in zones:
        yield Fault(
            ("lustre", "zone"),
            f"'{s.lustre.zone}' is not a zone of the network",
            f"one of {', '.join(zones)}",
        )


def lustre_capacity_is_one_that_fsx_makes(s: Settings) -> Iterator[Fault]:
    """SSD file systems have 1200 GiB or a multiple of 2400 GiB."""
    if s.lustre is None:
        return
    capacity = s.lustre.capacity_gib
    if capacity != LUSTRE_LEAST_CAPACITY_GIB and capacity % LUSTRE_CAPACITY_STEP_GIB:
        larger = -(-capacity // LUSTRE_CAPACITY_STEP_GIB) * LUSTRE_CAPACITY_STEP_GIB
        yield Fault(
            ("lustre", "capacityGib"),
            f"{s.lustre.deployment} is not made with {capacity} GiB",
            f"{LUSTRE_LEAST_CAPACITY_GIB} or a multiple of {LUSTRE_CAPACITY_STEP_GIB}",
            str(larger),
        )


def lustre_throughput_is_one_of_its_deployment(s: Settings) -> Iterator[Fault]:
    """PERSISTENT_2 has 125, 250, 500 or 1000 MB/s for each TiB; SCRATCH_2 has 200 and takes no choice."""
    if s.lustre is None or s.lustre.throughput_mbps_per_tib is None:
        return
    path, given = ("lustre", "throughputMbpsPerTib"), s.lustre.throughput_mbps_per_tib
    if s.lustre.deployment == "SCRATCH_2":
        yield Fault(path, "SCRATCH_2 has 200 MB/s/TiB and no choice", "remove it, or write PERSISTENT_2")
    elif given not in PERSISTENT_2_MBPS_PER_TIB:
        closest = min(PERSISTENT_2_MBPS_PER_TIB, key=lambda allowed: abs(allowed - given))
        choices = ", ".join(map(str, PERSISTENT_2_MBPS_PER_TIB))
        yield Fault(path, f"PERSISTENT_2 has no {given} MB/s/TiB", f"one of {choices}", str(closest))


def lustre_metadata_iops_are_ones_that_fsx_takes(s: Settings) -> Iterator[Fault]:
    """PERSISTENT_2 takes 1500, 3000, 6000, 12000 or a multiple of 12000 up to 192000; SCRATCH_2 none."""
    if s.lustre is None or s.lustre.metadata_iops is None:
        return
    path, given = ("lustre", "metadataIops"), s.lustre.metadata_iops
    if s.lustre.deployment == "SCRATCH_2":
        yield Fault(path, "SCRATCH_2 has no metadata configuration", "remove it, or write PERSISTENT_2")
    elif given not in METADATA_IOPS and (given % METADATA_IOPS_STEP or not 0 < given <= MAX_METADATA_IOPS):
        every = (*METADATA_IOPS, *range(2 * METADATA_IOPS_STEP, MAX_METADATA_IOPS + 1, METADATA_IOPS_STEP))
        yield Fault(
            path,
            f"FSx takes no {given} metadata operations a second",
            f"one of {', '.join(map(str, METADATA_IOPS))}, or a multiple of {METADATA_IOPS_STEP} "
            f"up to {MAX_METADATA_IOPS}",
            str(min(every, key=lambda allowed: abs(allowed - given))),
        )


def lustre_efa_is_of_persistent_2(s: Settings) -> Iterator[Fault]:
    """EFA is had on PERSISTENT_2 only, with a metadata configuration, and at creation only."""
    if s.lustre is not None and s.lustre.efa and s.lustre.deployment != "PERSISTENT_2":
        yield Fault(
            ("lustre", "efa"),
            f"{s.lustre.deployment} is not reached over EFA",
            "write PERSISTENT_2 or efa: false",
        )


@warning
def lustre_efa_has_its_least_capacity(s: Settings) -> Iterator[Fault]:
    """With EFA the capacity times the throughput of a TiB has a minimum: 19 200 GiB at 250 MB/s (AWS's PCS guide)."""
    if s.lustre is None or not s.lustre.efa or s.lustre.deployment != "PERSISTENT_2":
        return
    per_tib = s.lustre.throughput_mbps_per_tib or PERSISTENT_2_DEFAULT_MBPS_PER_TIB
    least = LUSTRE_EFA_LEAST_GIB_TIMES_MBPS_PER_TIB // per_tib
    if s.lustre.capacity_gib < least:
        yield Fault(
            ("lustre", "capacityGib"),
            f"{s.lustre.capacity_gib} GiB at {per_tib} MB/s/TiB may be too little for EFA",
            f"AWS asks for {least} GiB at this throughput",
        )


@warning
def auto_scaling_may_use_the_existing_key(s: Settings) -> Iterator[Fault]:
    """Nodes have volumes under a key of yours, which Auto Scaling's service-linked role must be let use (Auto Scaling
    user guide, key policy for encrypted volumes).
    """
    if s.kms.mode == "existing":
        yield Fault(
            ("kms", "keyArn"),
            "nodes have volumes under this key, and each ends at its launch where Auto Scaling may not use it",
            "its policy must let AWSServiceRoleForAutoScaling use it and create grants for AWS resources "
            "(docs/security.md, Keys)",
        )


@warning
def lustre_may_use_the_existing_key(s: Settings) -> Iterator[Fault]:
    """Links to buckets under a key of yours work only where its policy lets FSx's service-linked role decrypt."""
    if s.kms.mode == "existing" and any(dataset.read_path == "lustre" for dataset in s.datasets):
        yield Fault(
            ("kms", "keyArn"),
            "a file system loads datasets that are encrypted with this key",
            "its policy must let AWSServiceRoleForFSxS3Access_<file system> use it for kms:Decrypt and "
            "kms:GenerateDataKey",
        )


@warning
def mounted_datasets_have_their_client_on_the_image(s: Settings) -> Iterator[Fault]:
    """No image profile promises `mount-s3` or the Lustre client, and a private node cannot fetch them."""
    clients = {
        "mountpoint": "mount-s3 (Mountpoint for Amazon S3)",
        "lustre": "mount.lustre (the Lustre client)",
    }
    for place, dataset in enumerate(s.datasets):
        if dataset.read_path in clients:
            yield Fault(
                ("datasets", place, "readPath"),
                f"{dataset.read_path} needs {clients[dataset.read_path]} on the image, which no profile promises",
                "use an image that has it; a node without it ends a run on this dataset with exit code 20",
            )


@info
def production_keeps_its_data(s: Settings) -> Iterator[Fault]:
    """A reminder where a stack named prod gives data up with the stack: `retain: false` is that switch."""
    if not s.stack.startswith("prod"):
        return
    for place, dataset in enumerate(s.datasets):
        if not dataset.retain:
            yield Fault(
                ("datasets", place, "retain"),
                f"false: destroying the stack deletes the dataset '{dataset.name}' with all versions",
                "write true to keep it",
            )
    if s.datasets and not any(dataset.retain for dataset in s.datasets):
        yield Fault(
            ("datasets",),
            "no dataset is retained: destroying the stack deletes the checkpoints of all runs too",
            "write retain: true at one of them to keep them",
        )
    if s.lustre is not None and not s.lustre.retain:
        yield Fault(
            ("lustre", "retain"),
            "false: destroying the stack deletes the file system",
            "write true to keep it",
        )


@info
def nodes_are_in_the_zone_of_the_file_system(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """Reading a file system of another zone costs money for each GB and time for each request."""
    lustre: LustreSettings | None = settings.lustre
    zones = group.zones if group.zones is not None else settings.network.availability_zones
    others = [zone for zone in zones if lustre is not None and zone != lustre.zone]
    if lustre is not None and others:
        yield Fault(
            (*at, "zones"),
            f"nodes in {', '.join(others)} read the file system in {lustre.zone} across zones",
            f"name {lustre.zone} alone, or accept the cost",
        )


def root_volume_is_one_that_gp3_makes(
    group: GpuGroupSettings, at: Path, settings: Settings
) -> Iterator[Fault]:
    """gp3 has 3000 to 80000 IOPS, 500 for each GiB at most, and 125 to 2000 MiB/s, 0.25 for each IOPS at most."""
    iops, throughput = group.root_volume_iops, group.root_volume_throughput_mibps
    if iops is not None:
        path, most = (*at, "rootVolumeIops"), GP3_IOPS_PER_GIB * group.root_volume_gib
        if not GP3_IOPS[0] <= iops <= GP3_IOPS[1]:
            yield Fault(path, f"gp3 has no {iops} IOPS", f"from {GP3_IOPS[0]} to {GP3_IOPS[1]}")
        elif iops > most:
            yield Fault(
                path,
                f"{iops} IOPS are more than {GP3_IOPS_PER_GIB} for each of {group.root_volume_gib} GiB",
                f"at most {most}, or a larger volume",
            )
    if throughput is not None:
        path = (*at, "rootVolumeThroughputMibps")
        most = int(GP3_MIBPS_PER_IOPS * (iops or GP3_IOPS[0]))
        low, high = GP3_THROUGHPUT_MIBPS
        if not low <= throughput <= high:
            yield Fault(path, f"gp3 has no {throughput} MiB/s", f"from {low} to {high}")
        elif throughput > most:
            yield Fault(
                path,
                f"{throughput} MiB/s are more than {GP3_MIBPS_PER_IOPS} for each of {iops or GP3_IOPS[0]} IOPS",
                f"at most {most}, or more rootVolumeIops",
            )


RULES = (
    lustre_datasets_have_a_file_system,
    lustre_serves_a_dataset,
    lustre_links_at_most_eight_datasets,
    lustre_zone_is_of_the_network,
    lustre_capacity_is_one_that_fsx_makes,
    lustre_throughput_is_one_of_its_deployment,
    lustre_metadata_iops_are_ones_that_fsx_takes,
    lustre_efa_is_of_persistent_2,
    lustre_efa_has_its_least_capacity,
    auto_scaling_may_use_the_existing_key,
    lustre_may_use_the_existing_key,
    mounted_datasets_have_their_client_on_the_image,
    production_keeps_its_data,
)
GROUP_RULES = (
    nodes_are_in_the_zone_of_the_file_system,
    root_volume_is_one_that_gp3_makes,
)
