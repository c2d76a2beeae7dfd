"""Buckets for datasets and for what a cluster makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document
from components.names import stack_names
from components.settings import Settings
from components.settings.storage_model import DatasetSettings

ABORT_MULTIPART_DAYS = 7
# A pointer that a run moves every few minutes leaves as many old versions, and so does each pruned checkpoint.
ARTIFACTS_NONCURRENT_EXPIRY_DAYS = 3
ACCESS_LOGS_NONCURRENT_EXPIRY_DAYS = 1  # what has expired has expired


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

    expiry_days: int | None = None
    """Days after which an object is deleted. None: it stays."""

    log_writer_account_id: str | None = None
    """The account whose buckets' access logs S3 may deliver here. Such a bucket is encrypted with S3's own keys: log
    delivery takes no KMS key (S3 user guide, 2026). None: nobody's.
    """

    access_logs: SecureBucket | None = None
    """The bucket that the access logs of this one go to, below its name. None: there are none."""


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
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=args.retain,
                retain_on_delete=args.retain,
                # They belong to the lifecycle resource below. A refresh reads them into the bucket as well, and the
                # next update would delete what the bucket does not declare (pulumi-aws#6244).
                ignore_changes=["lifecycleRules"],
            ),
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
                rules=[_encryption(args)],
                opts=after_the_last(),
            )
        )
        self.ready.append(
            aws.s3.BucketPolicy(
                f"{name}-tls-only",
                bucket=bucket.id,
                policy=policy_document([self._deny_without_tls(), *self._log_delivery(args)]),
                opts=after_the_last(),
            )
        )
        self.ready.append(
            aws.s3.BucketLifecycleConfiguration(
                f"{name}-lifecycle",
                bucket=bucket.id,
                # Explicit: AWS changed the default once, which showed as a change of every bucket.
                transition_default_minimum_object_size="all_storage_classes_128K",
                rules=_lifecycle(args),
                opts=after_the_last(),
            )
        )
        if args.access_logs is not None:
            # S3 tries a delivery at once, so the target must be open to it.
            opts = pulumi.ResourceOptions.merge(
                after_the_last(),
                # Not kept with the bucket: where no logs are wanted any more, none may be written on.
                pulumi.ResourceOptions(depends_on=args.access_logs.ready, retain_on_delete=False),
            )
            self.ready.append(
                aws.s3.BucketLogging(
                    f"{name}-logging",
                    bucket=bucket.id,
                    target_bucket=args.access_logs.bucket_name,
                    target_prefix=f"{args.bucket_name}/",
                    opts=opts,
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

    def _log_delivery(self, args: SecureBucketArgs) -> list[dict[str, object]]:
        """The right of S3's log delivery to write here, for buckets of one account: by policy, since a bucket
        that belongs to its owner alone has no ACL.
        """
        account = args.log_writer_account_id
        if account is None:
            return []
        return [
            {
                "Sid": "LogDelivery",
                "Effect": "Allow",
                "Principal": {"Service": ["logging.s3.amazonaws.com"]},
                "Action": ["s3:PutObject"],
                "Resource": [f"{self.bucket_arn}/*"],
                "Condition": {"StringEquals": {"aws:SourceAccount": [account]}},
            }
        ]


def _encryption(args: SecureBucketArgs) -> aws.s3.BucketServerSideEncryptionConfigurationRuleArgsDict:
    if args.log_writer_account_id is not None:
        return {"apply_server_side_encryption_by_default": {"sse_algorithm": "AES256"}}
    return {
        "apply_server_side_encryption_by_default": {
            "sse_algorithm": "aws:kms",
            "kms_master_key_id": args.kms_key_arn,
        },
        "bucket_key_enabled": True,  # one call to KMS for many objects
    }


def _lifecycle(args: SecureBucketArgs) -> list[aws.s3.BucketLifecycleConfigurationRuleArgsDict]:
    """All rules of the bucket: a second configuration would overwrite the first (pulumi-aws#5187)."""
    rules: list[aws.s3.BucketLifecycleConfigurationRuleArgsDict] = [
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
            # Else each pruned checkpoint leaves a marker for ever, and listing walks over all of them.
            "expiration": {"expired_object_delete_marker": True},
        },
    ]
    if args.expiry_days is not None:
        rules.append(
            {
                "id": "expire-objects",
                "status": "Enabled",
                "filter": {"prefix": ""},
                "expiration": {"days": args.expiry_days},
            }
        )
    return rules


def artifacts_are_retained(settings: Settings) -> bool:
    """Checkpoints, and with them the key, stay when the stack goes if any dataset does, or if there is none."""
    return not settings.datasets or any(dataset.retain for dataset in settings.datasets)


def access_logs_bucket_args(settings: Settings) -> SecureBucketArgs | None:
    """The bucket of the other buckets' access logs, which stays as long as their contents do; None: none are
    written.
    """
    if settings.access_logs.retention_days is None:
        return None
    return SecureBucketArgs(
        bucket_name=stack_names(settings).access_logs_bucket,
        region=settings.region,
        noncurrent_expiry_days=ACCESS_LOGS_NONCURRENT_EXPIRY_DAYS,
        retain=artifacts_are_retained(settings),
        expiry_days=settings.access_logs.retention_days,
        log_writer_account_id=settings.account_id,
    )


def artifacts_bucket_args(
    settings: Settings, kms_key_arn: pulumi.Input[str] | None, access_logs: SecureBucket | None = None
) -> SecureBucketArgs:
    """The bucket of releases, documents, runs and checkpoints."""
    return SecureBucketArgs(
        bucket_name=stack_names(settings).artifacts_bucket,
        region=settings.region,
        noncurrent_expiry_days=ARTIFACTS_NONCURRENT_EXPIRY_DAYS,
        retain=artifacts_are_retained(settings),
        kms_key_arn=kms_key_arn,
        access_logs=access_logs,
    )


def dataset_bucket_args(
    settings: Settings,
    dataset: DatasetSettings,
    kms_key_arn: pulumi.Input[str] | None,
    access_logs: SecureBucket | None = None,
) -> SecureBucketArgs:
    """The bucket of one dataset."""
    return SecureBucketArgs(
        bucket_name=stack_names(settings).dataset_buckets[dataset.name],
        region=settings.region,
        noncurrent_expiry_days=dataset.noncurrent_expiry_days,
        retain=dataset.retain,
        kms_key_arn=kms_key_arn,
        access_logs=access_logs,
    )
