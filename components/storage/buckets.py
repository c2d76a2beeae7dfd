"""Buckets for datasets and for what a cluster makes of them."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document
from components.names import stack_names
from components.settings import Settings
from components.settings.storage_model import DatasetSettings

ABORT_MULTIPART_DAYS = 7
# A pointer that a run moves every few minutes leaves as many old versions.
ARTIFACTS_NONCURRENT_EXPIRY_DAYS = 30


@dataclass(frozen=True)
class SecureBucketArgs:
    """One bucket. Its name is plain, so that roles, documents and user data know it before it exists."""

    bucket_name: str
    """The bucket's full name; without dots, which break TLS host names and distributed checkpoints."""

    region: str
    """The region, for the partition of the bucket's ARN."""

    noncurrent_expiry_days: int
    """Days after which a replaced or deleted object is gone for good."""

    retain: bool
    """True: the bucket is protected, and it and its settings stay when the stack goes. False: destroying the
    stack deletes the bucket with everything in it.
    """

    kms_key_arn: pulumi.Input[str] | None = None
    """The key that encrypts the objects. None: the account's own key for S3 (aws/s3)."""


class SecureBucket(pulumi.ComponentResource):
    """A bucket that is versioned, encrypted, closed to the public and deaf to anything but TLS.

    The settings are resources of their own beside the bucket. S3 answers 409 to settings that are written at
    the same time, so each one waits for the one before it.
    """

    bucket_name: str
    bucket_arn: str
    ready: list[pulumi.Resource]  # the bucket's settings; who writes objects waits for them

    def __init__(self, name: str, args: SecureBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:storage:SecureBucket", name, None, opts)
        if "." in args.bucket_name:
            raise ValueError(f"bucket name '{args.bucket_name}' has a dot")
        self.bucket_name = args.bucket_name
        self.bucket_arn = f"arn:{partition(args.region)}:s3:::{args.bucket_name}"
        bucket = aws.s3.Bucket(
            f"{name}-bucket",
            bucket=args.bucket_name,
            force_destroy=not args.retain,
            tags={"Name": args.bucket_name},
            opts=pulumi.ResourceOptions(parent=self, protect=args.retain, retain_on_delete=args.retain),
        )
        self.ready = [bucket]

        def after_the_last() -> pulumi.ResourceOptions:
            # A retained bucket must not lose its locks when the stack goes.
            return pulumi.ResourceOptions(
                parent=self, depends_on=[self.ready[-1]], retain_on_delete=args.retain
            )

        self.ready.append(
            aws.s3.BucketOwnershipControls(
                f"{name}-ownership",
                bucket=bucket.id,
                rule={"object_ownership": "BucketOwnerEnforced"},
                opts=after_the_last(),
            )
        )
        self.ready.append(
            aws.s3.BucketPublicAccessBlock(
                f"{name}-public-access",
                bucket=bucket.id,
                block_public_acls=True,
                block_public_policy=True,
                ignore_public_acls=True,
                restrict_public_buckets=True,
                opts=after_the_last(),
            )
        )
        self.ready.append(
            aws.s3.BucketVersioning(
                f"{name}-versioning",
                bucket=bucket.id,
                versioning_configuration={"status": "Enabled"},
                opts=after_the_last(),
            )
        )
        self.ready.append(
            aws.s3.BucketServerSideEncryptionConfiguration(
                f"{name}-encryption",
                bucket=bucket.id,
                rules=[
                    {
                        "apply_server_side_encryption_by_default": {
                            "sse_algorithm": "aws:kms",
                            "kms_master_key_id": args.kms_key_arn,
                        },
                        "bucket_key_enabled": True,  # one call to KMS for many objects
                    }
                ],
                opts=after_the_last(),
            )
        )
        self.ready.append(
            aws.s3.BucketPolicy(
                f"{name}-tls-only",
                bucket=bucket.id,
                policy=policy_document([self._deny_without_tls()]),
                opts=after_the_last(),
            )
        )
        self.ready.append(
            aws.s3.BucketLifecycleConfiguration(
                f"{name}-lifecycle",
                bucket=bucket.id,
                # Explicit: AWS changed the default once, which showed as a change of every bucket.
                transition_default_minimum_object_size="all_storage_classes_128K",
                rules=[
                    {
                        "id": "abort-incomplete-uploads",
                        "status": "Enabled",
                        "filter": {"prefix": ""},
                        "abort_incomplete_multipart_upload": {"days_after_initiation": ABORT_MULTIPART_DAYS},
                    },
                    {
                        "id": "expire-noncurrent-versions",
                        "status": "Enabled",
                        "filter": {"prefix": ""},
                        "noncurrent_version_expiration": {"noncurrent_days": args.noncurrent_expiry_days},
                    },
                ],
                opts=after_the_last(),
            )
        )
        self.register_outputs({"bucketName": bucket.bucket})

    def _deny_without_tls(self) -> dict[str, object]:
        return {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": ["s3:*"],
            "Resource": [self.bucket_arn, f"{self.bucket_arn}/*"],
            "Condition": {"Bool": {"aws:SecureTransport": ["false"]}},
        }


def artifacts_are_retained(settings: Settings) -> bool:
    """Checkpoints, and with them the key, stay when the stack goes if any dataset does, or if there is none."""
    return not settings.datasets or any(dataset.retain for dataset in settings.datasets)


def artifacts_bucket_args(settings: Settings, kms_key_arn: pulumi.Input[str] | None) -> SecureBucketArgs:
    """The bucket of releases, documents, runs and checkpoints."""
    return SecureBucketArgs(
        bucket_name=stack_names(settings).artifacts_bucket,
        region=settings.region,
        noncurrent_expiry_days=ARTIFACTS_NONCURRENT_EXPIRY_DAYS,
        retain=artifacts_are_retained(settings),
        kms_key_arn=kms_key_arn,
    )


def dataset_bucket_args(
    settings: Settings, dataset: DatasetSettings, kms_key_arn: pulumi.Input[str] | None
) -> SecureBucketArgs:
    """The bucket of one dataset."""
    return SecureBucketArgs(
        bucket_name=stack_names(settings).dataset_buckets[dataset.name],
        region=settings.region,
        noncurrent_expiry_days=dataset.noncurrent_expiry_days,
        retain=dataset.retain,
        kms_key_arn=kms_key_arn,
    )
