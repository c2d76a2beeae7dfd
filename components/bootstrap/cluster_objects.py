"""The objects that all groups of a stack share: release tars and cluster.json."""

from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from .node_document import CLUSTER_KEY, artifact_key
from .release import ReleaseFile


@dataclass(frozen=True)
class ClusterObjectsArgs:
    """What lies in the artifacts bucket before the first node boots."""

    artifacts_bucket: str
    """The bucket's name."""

    release_files: list[ReleaseFile]
    """The tars that the groups' nodes install, and those of the kept releases to which they can be rolled back."""

    cluster_document: str
    """The text of cluster.json, which a researcher's machine reads, and nodes for their prices."""

    requires: list[pulumi.Resource] = field(default_factory=list)
    """The bucket with its settings: nothing is stored before it is encrypted and closed."""


class ClusterObjects(pulumi.ComponentResource):
    """Release tars, named by their SHA-256 and left in place when the stack moves on; cluster.json, which
    follows it.

    A node that reboots, or that is replaced during a rollout, still finds the release it was told of.
    """

    ready: list[pulumi.Resource]

    def __init__(
        self, name: str, args: ClusterObjectsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gputraining:bootstrap:ClusterObjects", name, None, opts)
        files = {file.sha256: file for file in args.release_files}
        self.ready = [
            aws.s3.BucketObjectv2(
                # Named by content as well: a new release stands beside the old one and replaces nothing.
                f"{name}-release-{sha256[:12]}",
                bucket=args.artifacts_bucket,
                key=artifact_key(sha256),
                source=pulumi.FileAsset(str(file.path)),
                source_hash=sha256,
                content_type="application/x-tar",
                opts=pulumi.ResourceOptions(parent=self, depends_on=args.requires, retain_on_delete=True),
            )
            for sha256, file in files.items()
        ]
        aws.s3.BucketObjectv2(
            f"{name}-cluster",
            bucket=args.artifacts_bucket,
            key=CLUSTER_KEY,
            content=args.cluster_document,
            content_type="application/json",
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.requires),
        )
        self.register_outputs({})
