"""How a researcher's command finds the stack: one bucket name, everything else is in its ``cluster.json``."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from .contracts import keys
from .contracts.cluster import Cluster
from .contracts.node_document import DatasetLocation
from .errors import ConfigurationError

if TYPE_CHECKING:
    from .store import Store

BUCKET_VARIABLE = "TRAINER_ARTIFACTS_BUCKET"


def add_bucket_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--artifacts-bucket",
        metavar="BUCKET",
        default=os.environ.get(BUCKET_VARIABLE),
        help=f"the stack's artifacts bucket (its output artifactsBucket; default: ${BUCKET_VARIABLE})",
    )


def artifacts_bucket(arguments: argparse.Namespace) -> str:
    """The bucket's name from ``--artifacts-bucket`` or the environment; raises ConfigurationError."""
    bucket = arguments.artifacts_bucket
    if not bucket:
        raise ConfigurationError(
            f"which stack? give --artifacts-bucket or set {BUCKET_VARIABLE} (stack output artifactsBucket)"
        )
    return str(bucket).removeprefix("s3://").rstrip("/")


def read_cluster(store: Store, bucket: str) -> Cluster:
    """Raises ConfigurationError where the bucket holds no stack, StoreError."""
    fetched = store.get(bucket, keys.cluster())
    if fetched is None:
        raise ConfigurationError(
            f"s3://{bucket} holds no {keys.cluster()}; it is no stack's artifacts bucket"
        )
    return Cluster.from_json(fetched.body)


def dataset_location(cluster: Cluster, name: str) -> DatasetLocation:
    """The bucket and prefix that the stack keeps for a dataset; raises ConfigurationError."""
    if name not in cluster.datasets:
        known = ", ".join(sorted(cluster.datasets)) or "none"
        raise ConfigurationError(
            f'stack {cluster.stack} has no dataset "{name}" (it has: {known}); add it to the configuration'
        )
    return cluster.datasets[name]
