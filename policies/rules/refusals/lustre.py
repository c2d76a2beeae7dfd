"""FSx for Lustre file systems whose figures belong to another deployment type (botocore's fsx model, 2026)."""

from __future__ import annotations

from collections.abc import Iterator

from .._judge import UNKNOWN, is_true, leaves, read
from ._validator import Found, Inputs, Validator, known, number

FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
ASSOCIATION = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
DEFAULT = "SCRATCH_1"  # of the API
THROUGHPUT = {  # MB/s for each TiB, by deployment and storage type
    ("PERSISTENT_1", "SSD"): (50, 100, 200),
    ("PERSISTENT_1", "HDD"): (12, 40),
    ("PERSISTENT_2", "SSD"): (125, 250, 500, 1000),
}
METADATA_IOPS = (1500, 3000, 6000, *range(12000, 192001, 12000))


def _deployment(inputs: Inputs) -> str | None:
    value = read(inputs, "deploymentType")
    return None if value is UNKNOWN else str(value or DEFAULT)


def _storage(inputs: Inputs) -> str | None:
    value = read(inputs, "storageType")
    return None if value is UNKNOWN else str(value or "SSD")


def lustre_links_buckets_by_associations(inputs: Inputs) -> Iterator[Found]:
    """`importPath`, `exportPath` and what goes with them on PERSISTENT_2 (terraform-provider-aws#22656)."""
    for key in ("importPath", "exportPath", "importedFileChunkSize", "autoImportPolicy"):
        if read(inputs, key) is not None and _deployment(inputs) == "PERSISTENT_2":
            yield f"{key}: not of PERSISTENT_2"


def lustre_import_options_have_a_path(inputs: Inputs) -> Iterator[Found]:
    """`exportPath`, chunk size and import policy without `importPath`."""
    for key in ("exportPath", "importedFileChunkSize", "autoImportPolicy"):
        if read(inputs, key) is not None and read(inputs, "importPath") is None:
            yield f"{key}: without importPath"


def lustre_capacity_is_of_the_deployment(inputs: Inputs) -> Iterator[Found]:
    """1200, 2400 or a multiple of 2400 GiB (SCRATCH_1: of 3600; HDD: of 6000 at 12 MB/s/TiB, of 1800 at 40)."""
    gib, deployment, storage = number(read(inputs, "storageCapacity")), _deployment(inputs), _storage(inputs)
    if gib is None or deployment is None or storage not in ("SSD", "HDD"):
        return
    if storage == "HDD":
        step = {12: 6000, 40: 1800}.get(int(number(read(inputs, "perUnitStorageThroughput")) or 0))
        right = step is None or (gib > 0 and gib % step == 0)
    else:
        step = 3600 if deployment == "SCRATCH_1" else 2400
        right = gib in (1200, 2400) or (gib > 0 and gib % step == 0)
    if not right:
        yield f"storageCapacity: {gib:g} GiB is no size of {deployment} on {storage}"


def lustre_throughput_is_of_the_deployment(inputs: Inputs) -> Iterator[Found]:
    """PERSISTENT_1 SSD 50, 100, 200; HDD 12, 40; PERSISTENT_2 125, 250, 500, 1000 MB/s/TiB; SCRATCH none."""
    deployment, storage = _deployment(inputs), _storage(inputs)
    value = read(inputs, "perUnitStorageThroughput")
    if deployment is None or storage is None or value is UNKNOWN:
        return
    if deployment.startswith("SCRATCH"):
        if value is not None:
            yield f"perUnitStorageThroughput: {deployment} has none"
        return
    choices = THROUGHPUT.get((deployment, storage))
    if choices is None:
        return  # told by lustre_storage_type_is_of_the_deployment, or intelligent tiering
    if value is None:
        yield f"perUnitStorageThroughput: missing, {deployment} needs it"
    elif number(value) not in choices:
        yield f"perUnitStorageThroughput: {value} is none of {', '.join(map(str, choices))} of {deployment} {storage}"


def lustre_storage_type_is_of_the_deployment(inputs: Inputs) -> Iterator[Found]:
    """HDD is of PERSISTENT_1 only, intelligent tiering of PERSISTENT_2 only."""
    deployment, storage = _deployment(inputs), _storage(inputs)
    wanted = {"HDD": "PERSISTENT_1", "INTELLIGENT_TIERING": "PERSISTENT_2"}.get(storage or "")
    if wanted is not None and deployment is not None and deployment != wanted:
        yield f"storageType: {storage} is not of {deployment}"


def lustre_scratch_has_no_key_and_no_backups(inputs: Inputs) -> Iterator[Found]:
    """A scratch file system takes no KMS key and cannot be backed up."""
    deployment = _deployment(inputs) or ""
    if deployment.startswith("SCRATCH"):
        if read(inputs, "kmsKeyId") is not None:
            yield f"kmsKeyId: {deployment} takes none"
        if number(read(inputs, "automaticBackupRetentionDays")):
            yield f"automaticBackupRetentionDays: {deployment} has no backups"


def lustre_backups_exclude_a_linked_bucket(inputs: Inputs) -> Iterator[Found]:
    """A file system that is linked to a bucket is not backed up."""
    if number(read(inputs, "automaticBackupRetentionDays")) and known(read(inputs, "importPath")):
        yield "automaticBackupRetentionDays: beside importPath"


def lustre_efa_is_of_persistent_2_with_metadata(inputs: Inputs) -> Iterator[Found]:
    """EFA needs PERSISTENT_2 and a metadata configuration, both at creation (terraform-provider-aws#40381)."""
    enabled = read(inputs, "efaEnabled")
    if enabled is UNKNOWN or not is_true(enabled):
        return
    if _deployment(inputs) not in (None, "PERSISTENT_2"):
        yield f"efaEnabled: not of {_deployment(inputs)}"
    if read(inputs, "metadataConfiguration") is None:
        yield "metadataConfiguration: missing, and EFA needs one"


def lustre_metadata_iops_are_possible(inputs: Inputs) -> Iterator[Found]:
    """1500, 3000, 6000, 12000 or a multiple of 12000 up to 192000, of PERSISTENT_2."""
    for at, iops in leaves(inputs, "metadataConfiguration.iops"):
        if number(iops) is not None and number(iops) not in METADATA_IOPS:
            yield f"{at}: {number(iops):g} is no size of the metadata servers"
    if read(inputs, "metadataConfiguration") is not None and _deployment(inputs) not in (
        None,
        "PERSISTENT_2",
    ):
        yield f"metadataConfiguration: not of {_deployment(inputs)}"


def lustre_has_one_subnet(inputs: Inputs) -> Iterator[Found]:
    """Exactly one subnet: the file system lies in one zone."""
    subnets = known(read(inputs, "subnetIds"))  # text, since the provider knows of this limit; or a list
    if subnets is not None and not isinstance(subnets, str) and len(subnets) != 1:
        yield f"subnetIds: {len(subnets)} of them"


def association_names_a_bucket_and_a_folder(inputs: Inputs) -> Iterator[Found]:
    """`dataRepositoryPath` is s3://bucket/prefix and `fileSystemPath` begins with a slash."""
    bucket, folder = known(read(inputs, "dataRepositoryPath")), known(read(inputs, "fileSystemPath"))
    if bucket is not None and not str(bucket).startswith("s3://"):
        yield f"dataRepositoryPath: '{bucket}' does not begin with s3://"
    if folder is not None and not str(folder).startswith("/"):
        yield f"fileSystemPath: '{folder}' does not begin with /"


_FS = frozenset({FILE_SYSTEM})
VALIDATORS = (
    Validator(lustre_links_buckets_by_associations, _FS, "a DataRepositoryAssociation for each bucket"),
    Validator(lustre_import_options_have_a_path, _FS, "import_path, or none of the others"),
    Validator(lustre_capacity_is_of_the_deployment, _FS, "1200, 2400 or a multiple of 2400 GiB"),
    Validator(lustre_throughput_is_of_the_deployment, _FS, "a throughput of the deployment type"),
    Validator(lustre_storage_type_is_of_the_deployment, _FS, "SSD"),
    Validator(lustre_scratch_has_no_key_and_no_backups, _FS, "PERSISTENT_2, or neither of them"),
    Validator(lustre_backups_exclude_a_linked_bucket, _FS, "no backups: the bucket holds the data"),
    Validator(lustre_efa_is_of_persistent_2_with_metadata, _FS, "PERSISTENT_2 and metadata_configuration"),
    Validator(lustre_metadata_iops_are_possible, _FS, "6000, or mode AUTOMATIC"),
    Validator(lustre_has_one_subnet, _FS, "one subnet"),
    Validator(
        association_names_a_bucket_and_a_folder, frozenset({ASSOCIATION}), "s3://bucket/prefix and /folder"
    ),
)
