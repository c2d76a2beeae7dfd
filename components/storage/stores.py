"""Where a stack's data lies: the key, the buckets, and what waits for them."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from components.settings import Settings

from .buckets import SecureBucket, access_logs_bucket_args, artifacts_bucket_args, dataset_bucket_args
from .encryption_key import EncryptionKey, encryption_key_args


@dataclass(frozen=True)
class Stores:
    """The buckets of a stack and the key over them."""

    key_arn: pulumi.Input[str] | None
    """Key of buckets and volumes. None: the keys that AWS keeps for each service."""

    own_key_arn: pulumi.Input[str] | None
    """The same key where the stack made it: its policy lets CloudWatch, SNS and Budgets in, another's may not."""

    artifacts: SecureBucket
    """Releases, documents, runs and their checkpoints."""

    ready: list[pulumi.Resource]
    """All buckets that nodes work with, and their settings."""


def declare_stores(settings: Settings, opts: pulumi.ResourceOptions) -> Stores:
    """The stack's key if it has one of its own, and its buckets."""
    key_arn: pulumi.Input[str] | None = settings.kms.key_arn
    own_key_arn = None
    if settings.kms.mode == "create":
        key_arn = own_key_arn = EncryptionKey("encryption", encryption_key_args(settings), opts).key_arn
    logs_args = access_logs_bucket_args(settings)
    logs = SecureBucket("access-logs", logs_args, opts) if logs_args else None
    artifacts = SecureBucket("artifacts", artifacts_bucket_args(settings, key_arn, logs), opts)
    datasets = [
        SecureBucket(f"data-{dataset.name}", dataset_bucket_args(settings, dataset, key_arn, logs), opts)
        for dataset in settings.datasets
    ]
    ready = [resource for bucket in [artifacts, *datasets] for resource in bucket.ready]
    return Stores(key_arn, own_key_arn, artifacts, ready)
