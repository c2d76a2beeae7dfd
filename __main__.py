"""Settings in, components wired, outputs out; what there is to decide is decided in the plans."""

import gc
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
from components.cost import cost_outputs
from components.cost.budget import StackBudget, budget_args
from components.engine_log import without_debug_messages
from components.identity.access import Access, access_args
from components.monitoring.run_events import RunEvents, RunEventsArgs
from components.monitoring.stack import Monitoring, monitoring_args
from components.names import stack_names, stack_tags
from components.network.network import Network, network_args
from components.settings import from_pulumi
from components.storage.lustre import Lustre, lustre_args
from components.storage.stores import declare_stores

gc.disable()  # the program lives for seconds and drops nothing: collecting took two fifths of it with twenty groups
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
if line := manual_rollouts(plans):
    pulumi.info(line)

provider = aws.Provider(
    "aws",
    region=names.region,
    allowed_account_ids=settings.allowed_account_ids,
    default_tags={"tags": stack_tags(settings)},
)
opts = pulumi.ResourceOptions(provider=provider)

stores = declare_stores(settings, opts)
key, own_key, boundary = stores.key_arn, stores.own_key_arn, settings.permission_boundary_arn
network = Network("network", network_args(settings, own_key), opts)
monitoring = Monitoring("monitoring", monitoring_args(settings, own_key), opts)
told = settings.monitoring.alerts.run_emails
run_events = RunEvents("run-events", RunEventsArgs(names, told, own_key), opts)
access = Access("access", access_args(settings, key, own_key), opts)
files = releases.files(file for boot in boots for file in boot.release_files)
shared = ClusterObjectsArgs(
    names.artifacts_bucket, files, cluster_document_of(settings), stores.artifacts.ready
)
objects = ClusterObjects("cluster", shared, opts)
lustre = lustre_args(settings, network, stores)
mounts = Lustre("lustre", lustre, opts).ready if lustre else []
requires = [*network.ready, *stores.ready, *objects.ready, *monitoring.ready, *run_events.ready, *mounts]
inside, endpoints = network.node_security_group_id, services_by_endpoint(settings)
groups: dict[str, GpuGroup] = {}
for plan, boot in zip(plans, boots, strict=True):
    subnets: list[pulumi.Input[str]] = [network.private_subnet_ids[zone] for zone in plan.zones]
    args = GpuGroupArgs(names, plan, boot, subnets, inside, key, boundary, endpoints, requires)
    groups[plan.name] = GpuGroup(plan.name, args, opts)
monitoring.watch(watched_group(plan, groups) for plan in plans)
if budget := budget_args(settings, monitoring.alerts_topic_arn, own_key):
    StackBudget("budget", budget, opts)

pulumi.export("artifactsBucket", names.artifacts_bucket)
pulumi.export("datasetBuckets", names.dataset_buckets)
pulumi.export("groups", {plan.name: plan.auto_scaling_group for plan in plans})
pulumi.export("alertsTopicArn", monitoring.alerts_topic_arn)
pulumi.export("dashboardUrl", monitoring.dashboard_url)
pulumi.export("researcherPolicyArn", access.researcher_policy_arn)
pulumi.export("operatorPolicyArn", access.operator_policy_arn)
pulumi.export("sessionDocument", access.session_document)
for name, value in cost_outputs(settings).items():
    pulumi.export(name, value)
