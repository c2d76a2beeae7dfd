"""Settings in, components wired, outputs out; what there is to decide is decided in the plans."""

from datetime import datetime, timezone
from pathlib import Path

import pulumi
import pulumi_aws as aws

from components.bootstrap.boot_plan import cluster_document_of, plan_boot
from components.bootstrap.cluster_objects import ClusterObjects, ClusterObjectsArgs
from components.bootstrap.release import read_releases
from components.compute.gpu_group import GpuGroup, GpuGroupArgs
from components.compute.node_rights import services_by_endpoint
from components.compute.plan import manual_rollouts, plan_group
from components.compute.watched import watched_group
from components.cost import cost_table, estimate, hourly_cost_usd, monthly_cost_usd
from components.cost.budget import StackBudget, StackBudgetArgs
from components.cost.budget_plan import plan_budget
from components.engine_log import without_debug_messages
from components.identity.access import Access, access_args
from components.monitoring.run_events import RunEvents, RunEventsArgs
from components.monitoring.stack import Monitoring, MonitoringArgs
from components.names import stack_names, stack_tags
from components.network.network import Network, network_args
from components.settings import from_pulumi
from components.storage.buckets import (
    SecureBucket,
    access_logs_bucket_args,
    artifacts_bucket_args,
    dataset_bucket_args,
)
from components.storage.encryption_key import EncryptionKey, encryption_key_args
from components.storage.lustre import Lustre, LustreArgs
from components.storage.lustre_plan import plan_lustre

without_debug_messages()
settings = from_pulumi()
names = stack_names(settings)
try:
    releases = read_releases(Path(__file__).parent)
    release = releases.choose(settings.trainer_version)
    now = datetime.now(timezone.utc)
    plans = [plan_group(settings, group, now) for group in settings.gpu_groups]
    boots = [plan_boot(settings, plan, release) for plan in plans]
except ValueError as fault:  # a mistake that a person can mend: one line, no trace
    raise pulumi.RunError(str(fault)) from None

provider = aws.Provider(
    "aws",
    region=names.region,
    allowed_account_ids=settings.allowed_account_ids,
    default_tags={"tags": stack_tags(settings)},
)
opts = pulumi.ResourceOptions(provider=provider)

key_arn = settings.kms.key_arn
if settings.kms.mode == "create":
    key_arn = EncryptionKey("encryption", encryption_key_args(settings), opts).key_arn
own_key = key_arn if settings.kms.mode == "create" else None  # another's policy may not know SNS and logs
network = Network("network", network_args(settings, own_key), opts)
logs_args = access_logs_bucket_args(settings)
access_logs = SecureBucket("access-logs", logs_args, opts) if logs_args else None
artifacts = SecureBucket("artifacts", artifacts_bucket_args(settings, key_arn, access_logs), opts)
datasets = [
    SecureBucket(f"data-{dataset.name}", dataset_bucket_args(settings, dataset, key_arn, access_logs), opts)
    for dataset in settings.datasets
]
watched = settings.monitoring
monitoring = Monitoring(
    "monitoring",
    MonitoringArgs(
        base_name=names.base_name,
        account_id=names.account_id,
        region=names.region,
        auto_scaling_groups=[plan.auto_scaling_group for plan in plans],
        metrics_port=watched.metrics_port,
        retention_days=watched.retention_days,
        alert_emails=watched.alerts.emails,
        key_arn=own_key,
        sns_topic_arn=watched.alerts.sns_topic_arn,
        kubeconfig=pulumi.Output.secret(watched.kubeconfig) if watched.kubeconfig else None,
    ),
    opts,
)
run_events = RunEvents("run-events", RunEventsArgs(names, watched.alerts.run_emails, own_key), opts)
access = Access("access", access_args(settings, key_arn, own_key), opts)
files = releases.files(file for boot in boots for file in boot.release_files)
shared = ClusterObjectsArgs(names.artifacts_bucket, files, cluster_document_of(settings), artifacts.ready)
objects = ClusterObjects("cluster", shared, opts)
stored = [resource for bucket in [artifacts, *datasets] for resource in bucket.ready]
requires = [*network.ready, *stored, *objects.ready, *monitoring.ready, *run_events.ready]
lustre, lustre_group = plan_lustre(settings), network.lustre_security_group_id
if lustre is not None and lustre_group is not None:
    subnet = network.private_subnet_ids[lustre.zone]
    requires += Lustre("lustre", LustreArgs(lustre, subnet, lustre_group, key_arn, stored), opts).ready
endpoints = services_by_endpoint(settings)
inside, boundary = network.node_security_group_id, settings.permission_boundary_arn
groups: dict[str, GpuGroup] = {}
for plan, boot in zip(plans, boots, strict=True):
    subnets: list[pulumi.Input[str]] = [network.private_subnet_ids[zone] for zone in plan.zones]
    args = GpuGroupArgs(names, plan, boot, subnets, inside, key_arn, boundary, endpoints, requires)
    groups[plan.name] = GpuGroup(plan.name, args, opts)
monitoring.watch(watched_group(plan, groups) for plan in plans)
if budget := plan_budget(settings):
    told = monitoring.alerts_topic_arn
    budget_args = StackBudgetArgs(names, budget, told, watched.retention_days, own_key, boundary)
    StackBudget("budget", budget_args, opts)
if line := manual_rollouts(plans):
    pulumi.info(line)

pulumi.export("artifactsBucket", names.artifacts_bucket)
pulumi.export("datasetBuckets", names.dataset_buckets)
pulumi.export("groups", {plan.name: plan.auto_scaling_group for plan in plans})
pulumi.export("alertsTopicArn", monitoring.alerts_topic_arn)
pulumi.export("researcherPolicyArn", access.researcher_policy_arn)
pulumi.export("operatorPolicyArn", access.operator_policy_arn)
pulumi.export("sessionDocument", access.session_document)
pulumi.export("dashboardUrl", monitoring.dashboard_url)
pulumi.export("hourlyCostUsd", hourly_cost_usd(settings))
pulumi.export("monthlyCostUsd", monthly_cost_usd(settings))
pulumi.export("costTable", cost_table(settings.stack, estimate(settings), estimate(settings, at_max=True)))
