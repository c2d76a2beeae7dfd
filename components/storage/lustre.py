"""An FSx for Lustre file system over the datasets that are read through it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from components.network.network import Network
from components.settings import Settings

from .lustre_plan import LUSTRE_VERSION, LustrePlan, plan_lustre
from .stores import Stores

# FSx takes about ten minutes for either, and has taken far more than the provider's own limit for a link of a large
# bucket (eks-ml-kubeflow#112).
TIMEOUTS = pulumi.CustomTimeouts(create="90m", update="90m", delete="60m")


@dataclass(frozen=True)
class LustreArgs:
    """A planned file system, and where it lies."""

    plan: LustrePlan
    """What it is made of."""

    subnet_id: pulumi.Input[str]
    """The private subnet of its zone."""

    security_group_id: pulumi.Input[str]
    """Lets nodes reach the file servers: TCP 988 and 1018 to 1023; with EFA everything between them."""

    kms_key_arn: pulumi.Input[str] | None = None
    """The key of the file system. None: the account's own key for FSx (aws/fsx)."""

    requires: list[pulumi.Resource] = field(default_factory=list)
    """The buckets with their settings: a link reads one at once, and the object is stored in one."""


def lustre_args(settings: Settings, network: Network, stores: Stores) -> LustreArgs | None:
    """None where the stack has no file system."""
    plan = plan_lustre(settings)
    if plan is None or network.lustre_security_group_id is None:
        return None
    return LustreArgs(
        plan=plan,
        subnet_id=network.private_subnet_ids[plan.zone],
        security_group_id=network.lustre_security_group_id,
        kms_key_arn=stores.key_arn,
        requires=stores.ready,
    )


class Lustre(pulumi.ComponentResource):
    """The file system, its links to dataset buckets, and the object that tells nodes how to mount it.

    What of it is decided at creation (EFA, deployment, subnet, key) replaces the file system when it changes; a
    retained one is protected from that. The links are made one after another, since FSx refuses a second one while
    a first is being made. They go when their dataset is read otherwise, also where the file system stays: a link
    left behind would count towards the eight and be in the way of its successor. What it had loaded stays.
    """

    file_system_id: pulumi.Output[str]
    ready: list[pulumi.Resource]  # the object and the links; nodes that boot earlier would find neither

    def __init__(self, name: str, args: LustreArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:storage:Lustre", name, None, opts)
        plan = args.plan
        system = aws.fsx.LustreFileSystem(
            f"{name}-file-system",
            storage_capacity=plan.capacity_gib,
            storage_type="SSD",
            deployment_type=plan.deployment_type,
            file_system_type_version=LUSTRE_VERSION,
            per_unit_storage_throughput=plan.per_unit_storage_throughput,
            # Always there on PERSISTENT_2: EFA needs it, and it can be had at creation only.
            metadata_configuration=_metadata(plan) if plan.is_persistent else None,
            efa_enabled=True if plan.efa else None,
            subnet_ids=args.subnet_id,  # exactly one
            security_group_ids=[args.security_group_id],
            kms_key_id=args.kms_key_arn if plan.takes_kms_key else None,
            automatic_backup_retention_days=plan.backup_retention_days,
            # Also where there are none yet (FSBP FSx.2): it is decided at creation.
            copy_tags_to_backups=True if plan.is_persistent else None,
            skip_final_backup=not plan.backup_retention_days,
            tags={"Name": plan.name},
            opts=pulumi.ResourceOptions(
                parent=self, protect=plan.retain, retain_on_delete=plan.retain, custom_timeouts=TIMEOUTS
            ),
        )
        self.ready = []
        for link in plan.links:
            self.ready.append(
                aws.fsx.DataRepositoryAssociation(
                    f"{name}-{link.dataset}",
                    file_system_id=system.id,
                    data_repository_path=link.data_repository_path,
                    file_system_path=link.file_system_path,
                    batch_import_meta_data_on_create=True,
                    s3={"auto_import_policy": {"events": ["NEW", "CHANGED", "DELETED"]}},
                    tags={"Name": f"{plan.name}-{link.dataset}"},
                    opts=pulumi.ResourceOptions(
                        parent=self,
                        depends_on=[*args.requires, *self.ready],
                        custom_timeouts=TIMEOUTS,
                    ),
                )
            )
        self.ready.append(
            aws.s3.BucketObjectv2(
                f"{name}-document",
                bucket=plan.artifacts_bucket,
                key=plan.document_key,
                content=pulumi.Output.all(system.id, system.dns_name, system.mount_name).apply(
                    lambda known: lustre_document(*known)
                ),
                content_type="application/json",
                opts=pulumi.ResourceOptions(parent=self, depends_on=args.requires),
            )
        )
        self.file_system_id = system.id
        self.register_outputs({"fileSystemId": system.id})


def lustre_document(file_system_id: str, dns_name: str, mount_name: str) -> str:
    """How the file system is mounted, which is known only once it exists: the node document only names this
    object, so that it is known at preview.
    """
    values = {"fileSystemId": file_system_id, "dnsName": dns_name, "mountName": mount_name}
    return json.dumps({"schemaVersion": 1, **values}, sort_keys=True, separators=(",", ":")) + "\n"


def _metadata(plan: LustrePlan) -> aws.fsx.LustreFileSystemMetadataConfigurationArgsDict:
    if plan.metadata_iops is None:
        return {"mode": "AUTOMATIC"}
    return {"mode": "USER_PROVISIONED", "iops": plan.metadata_iops}
