"""From the plan of a group to what its nodes boot with: user data, node document, release files. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from components.catalog import image_profile, instance_type
from components.compute.plan import GroupPlan
from components.cost.node_prices import node_prices
from components.names import stack_names
from components.settings import Settings
from components.storage.node_storage import plan_node_scratch, read_paths

from .node_document import (
    LAUNCHING_HOOK,
    METRIC_NAMESPACE,
    SCHEMA_VERSION,
    TERMINATING_HOOK,
    ClusterGroup,
    NodeFacts,
    cluster_document,
    node_document,
    node_document_key,
    sha256_of,
)
from .release import Release, ReleaseFile, artifact_name
from .user_data import BootVariables, render_user_data


@dataclass(frozen=True)
class BootPlan:
    """What one group's nodes boot with, as text."""

    document: str
    document_key: str  # in the artifacts bucket
    user_data: str  # not encoded
    release_files: tuple[ReleaseFile, ...]  # the trainer's, and torch's where the image has none


def plan_boot(settings: Settings, group: GroupPlan, release: Release) -> BootPlan:
    """Raises ReleaseError where the release lacks what the image needs, UserDataTooLong above EC2's limit."""
    profile = image_profile(group.image_profile)
    tar = artifact_name(profile.abi, profile.architecture)
    trainer = release.trainer_for(tar)
    torch = release.torch_for(tar, profile.name) if profile.torch_is_artifact else None
    names = stack_names(settings)
    types = [instance_type(name) for name in group.instance_types]
    gpu_models = {type_.gpu.model for type_ in types}
    document = node_document(
        NodeFacts(
            stack=settings.stack,
            group=group.name,
            auto_scaling_group=group.auto_scaling_group,
            region=settings.region,
            artifacts_bucket=names.artifacts_bucket,
            dataset_buckets=names.dataset_buckets,
            read_paths=read_paths(settings),
            scratch=plan_node_scratch(profile, types),
            lustre_key=names.lustre_key,
            release_sha256=trainer.sha256,
            release_version=release.version,
            interpreter=profile.interpreter,
            torch_site_packages=profile.torch_site_packages,
            torch_sha256=torch.sha256 if torch else None,
            # The promise must hold on whichever of its types a node is.
            instance_type=types[0].name,
            accelerator=profile.accelerator,
            gpu_model=gpu_models.pop() if len(gpu_models) == 1 else None,
            gpu_count=min(type_.gpu.count for type_ in types),
            gpu_memory_gib=min(type_.gpu.memory_gib_each for type_ in types),
            efa_count=group.efa_count,
            self_check_level=settings.self_check.level,
            floors_tflops=settings.self_check.floors_tflops,
            on_failure=settings.self_check.on_failure,
            max_replacements=settings.self_check.max_replacements,
            log_group=names.node_log_group,
            metrics_port=settings.monitoring.metrics_port,
            dcgm_names=settings.monitoring.dcgm_names,
            secrets=names.secrets,
            max_run_hours=group.max_run_hours,
            idle_stop_minutes=group.idle_alarm_minutes,
            runs_topic_arn=names.arn("sns", names.runs_topic),
        )
    )
    key = node_document_key(group.name, document)
    user_data = render_user_data(
        BootVariables(
            stack=settings.stack,
            group=group.name,
            region=settings.region,
            auto_scaling_group=group.auto_scaling_group,
            document_uri=f"s3://{names.artifacts_bucket}/{key}",
            document_sha256=sha256_of(document),
            schema_version=SCHEMA_VERSION,
            interpreter=profile.interpreter,
            aws_client=profile.aws_client,
            launching_hook=LAUNCHING_HOOK,
            terminating_hook=TERMINATING_HOOK,
            on_failure=settings.self_check.on_failure,
            max_replacements=settings.self_check.max_replacements,
            metric_namespace=METRIC_NAMESPACE,
            log_group=names.node_log_group,
        )
    )
    return BootPlan(document, key, user_data, (trainer, torch) if torch else (trainer,))


def cluster_document_of(settings: Settings) -> str:
    """cluster.json of a stack with these settings."""
    names = stack_names(settings)
    return cluster_document(
        stack=settings.stack,
        region=settings.region,
        artifacts_bucket=names.artifacts_bucket,
        groups={
            group.name: ClusterGroup(
                auto_scaling_group=names.auto_scaling_group(group.name),
                max_nodes=group.max_nodes,
                prices=node_prices(
                    group.instance_types, settings.region, group.purchase.max_price_usd_per_hour
                ),
            )
            for group in settings.gpu_groups
        },
        dataset_buckets=names.dataset_buckets,
    )
