"""S3 and FSx. As of 2026-11: pulumi_aws 7.51.1, Terraform AWS provider 6.

A bucket's inline sub-settings (versioning, policy and so on) are deprecated and kept as declared: the split
sub-resources are the ones that are realised. Access logs are not: the emulation would write an object for every
request. File systems are not either: no emulation serves them.
"""

from __future__ import annotations

from .build import arn, row

_BUCKET_ARN = "arn:{partition}:s3:::{name}"


def _part(camel: str, replace: str = "bucket"):
    """A sub-resource of a bucket, known by the bucket's name."""
    return row(
        f"aws:s3/{camel}:{camel[0].upper()}{camel[1:]}", "{in[bucket]}", replace=replace, held="realised"
    )


def _object(camel: str, outputs: dict[str, str], ignored: frozenset[str]):
    base = {"arn": "arn:{partition}:s3:::{in[bucket]}/{in[key]}", "versionId": "{hex32}"}
    return row(
        f"aws:s3/{camel}:{camel[0].upper()}{camel[1:]}",
        "{in[bucket]}/{in[key]}",
        {**base, **outputs},
        filled={"contentType": "application/octet-stream", "etag": "{hex32}", "storageClass": "STANDARD"},
        replace="bucket key",
        moves=dict.fromkeys(("versionId", "etag", *outputs), ignored),
        taggable=True,
        held="realised",
    )


# Changes of an object that leave its bytes, and so its version, alone.
_SAME_BYTES = frozenset({"tags", "acl", "forceDestroy", "objectLockLegalHoldStatus", "objectLockMode"})
_CHECKSUMS = ("checksumCrc32", "checksumCrc32c", "checksumCrc64nvme", "checksumSha1", "checksumSha256")

KINDS = (
    row(
        "aws:s3/bucket:Bucket",
        "{name}",
        {
            "arn": _BUCKET_ARN,
            "bucketDomainName": "{name}.s3.{dns}",
            "bucketRegion": "{region}",
            "bucketRegionalDomainName": "{name}.s3.{region}.{dns}",
            "hostedZoneId": "Z3AQBSTGFYJSTF",
            "websiteDomain": "",
            "websiteEndpoint": "",
        },
        replace="bucketPrefix bucketNamespace objectLockEnabled",
        name="bucket",
        taggable=True,
        held="realised",
    ),
    _part("bucketVersioning", "bucket expectedBucketOwner"),
    _part("bucketServerSideEncryptionConfiguration", "bucket expectedBucketOwner"),
    _part("bucketPublicAccessBlock"),
    _part("bucketOwnershipControls"),
    _part("bucketPolicy"),
    _part("bucketLifecycleConfiguration", "bucket expectedBucketOwner"),
    row(
        "aws:s3/bucketLogging:BucketLogging",
        "{in[bucket]}",
        replace="bucket expectedBucketOwner",
    ),
    _object("bucketObject", {}, _SAME_BYTES),
    _object("bucketObjectv2", dict.fromkeys(_CHECKSUMS, ""), _SAME_BYTES),
    row(
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        "fs-{hex17}",
        {
            "arn": arn("fsx", "file-system/{id}"),
            "dnsName": "{id}.fsx.{region}.{dns}",
            "mountName": "{hex8}",
            "networkInterfaceIds": ["eni-{hex17}"],
            "ownerId": "{account}",
            "vpcId": "vpc-{hex17}",
        },
        filled={
            "dailyAutomaticBackupStartTime": "00:00",
            "driveCacheType": "",
            "fileSystemTypeVersion": "2.10",
            "weeklyMaintenanceStartTime": "1:05:00",
        },
        # Not fileSystemTypeVersion, which is raised in place.
        replace="backupId copyTagsToBackups deploymentType driveCacheType efaEnabled exportPath "
        "importPath importedFileChunkSize kmsKeyId securityGroupIds storageType subnetIds",
        taggable=True,
    ),
    row(
        "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation",
        "dra-{hex17}",
        {
            "arn": arn("fsx", "association/{in[fileSystemId]}/{id}"),
            "associationId": "{id}",
        },
        filled={"importedFileChunkSize": 1024},
        replace="batchImportMetaDataOnCreate dataRepositoryPath fileSystemId fileSystemPath",
        taggable=True,
    ),
)
