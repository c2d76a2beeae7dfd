"""The names of what a stack consists of, plain and known before anything exists.

Roles, documents, alarms and user data all speak of the same buckets and groups; this is the one place that
spells them.
"""

from __future__ import annotations

from components.settings import Settings


def artifacts_bucket(settings: Settings) -> str:
    """Releases, node documents, runs and their checkpoints. Bucket names are shared by all of AWS."""
    return f"{settings.base_name}-artifacts-{settings.account_id}"


def dataset_buckets(settings: Settings) -> dict[str, str]:
    """Dataset -> bucket: protection, retention and rights are per bucket."""
    return {
        dataset.name: f"{settings.base_name}-data-{dataset.name}-{settings.account_id}"
        for dataset in settings.datasets
    }


def auto_scaling_group(settings: Settings, group: str) -> str:
    return f"{settings.base_name}-{group}"


def node_log_group(settings: Settings) -> str:
    return f"/{settings.base_name}/nodes"
