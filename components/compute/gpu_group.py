"""One group of GPU nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from components.bootstrap.boot_plan import BootPlan
from components.bootstrap.node_document import LAUNCHING_HOOK, METRIC_NAMESPACE, TERMINATING_HOOK
from components.names import StackNames

from .group_scaling import scaling_policies, scheduled_actions
from .launch_templates import NodeInputs, launch_templates
from .node_role import NodeRole, NodeRoleArgs
from .plan import GroupPlan
from .purchase import least_healthy_percent

# A node has this long between two signs of life while it boots and checks itself; without one it is given up.
LAUNCHING_HEARTBEAT_SECONDS = 900
# A node that leaves has this long to save. A spot interruption still ends after its own two minutes.
TERMINATING_HEARTBEAT_SECONDS = 300
HEALTH_CHECK_GRACE_SECONDS = 300
# The provider gives up a group whose nodes are not gone after 10 minutes; machines with eight GPUs take longer to end,
# and a placement group cannot go before they are.
DELETION_LIMIT = "45m"

HOOKS = (
    # A node that says nothing did not pass: its launch is abandoned.
    (LAUNCHING_HOOK, "autoscaling:EC2_INSTANCE_LAUNCHING", "ABANDON", LAUNCHING_HEARTBEAT_SECONDS),
    (TERMINATING_HOOK, "autoscaling:EC2_INSTANCE_TERMINATING", "CONTINUE", TERMINATING_HEARTBEAT_SECONDS),
)

GROUP_METRICS = [
    aws.autoscaling.Metric.GROUP_DESIRED_CAPACITY,
    aws.autoscaling.Metric.GROUP_IN_SERVICE_INSTANCES,
    aws.autoscaling.Metric.GROUP_MAX_SIZE,
    aws.autoscaling.Metric.GROUP_MIN_SIZE,
    aws.autoscaling.Metric.GROUP_PENDING_INSTANCES,
    aws.autoscaling.Metric.GROUP_TERMINATING_INSTANCES,
    aws.autoscaling.Metric.GROUP_TOTAL_INSTANCES,
]


@dataclass(frozen=True)
class GpuGroupArgs:
    """One group: its plan, what its nodes boot with, and where they live."""

    names: StackNames
    """The buckets and the log group that the nodes work with, and where these are."""

    plan: GroupPlan
    """Types, interfaces, purchase, sizes and names of the group."""

    boot: BootPlan
    """User data and node document; the launch template holds the first, the artifacts bucket the second."""

    subnet_ids: list[pulumi.Input[str]]
    """Private subnets of the plan's zones; exactly one where the group has EFA."""

    security_group_id: pulumi.Input[str]
    """The nodes' security group, on every interface."""

    kms_key_arn: pulumi.Input[str] | None = None
    """Key of volumes and buckets. None: the account's own keys for EBS and S3."""

    permission_boundary_arn: str | None = None
    """The policy that bounds the nodes' role. None: no boundary."""

    services_by_endpoint: tuple[str, ...] = ()
    """Services that nodes call through VPC endpoints only; see `node_rights.services_by_endpoint`."""

    requires: list[pulumi.Resource] = field(default_factory=list)
    """What must exist before the first node boots, besides the group's own role and document: routes,
    endpoints, release tars, buckets with their settings.
    """


class GpuGroup(pulumi.ComponentResource):
    """Launch templates, Auto Scaling group with both lifecycle hooks, role, and the document its nodes read.

    The hooks are declared on the group itself, where they already hold for the first fleet, and as resources
    of the same names, through which later changes reach a group that exists. The number of nodes is set at
    creation only: afterwards it belongs to whoever scales the group.

    Deletion goes the other way round: hooks, schedules and policies, then the group with its nodes, then the
    placement group, which EC2 keeps while a node is in it.
    """

    auto_scaling_group_name: pulumi.Output[str]
    policy_arns: Mapping[str, pulumi.Output[str]]
    """What alarms call, by role: fallback-raise and fallback-end of a fall-back group, idle-stop."""

    def __init__(self, name: str, args: GpuGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:compute:GpuGroup", name, None, opts)
        self._name, self._args, self._plan = name, args, args.plan
        self._child = pulumi.ResourceOptions(parent=self)

        document = aws.s3.BucketObjectv2(
            f"{name}-node-document",
            bucket=args.names.artifacts_bucket,
            key=args.boot.document_key,
            content=args.boot.document,
            content_type="application/json",
            # Nodes that run with an older document still read theirs when they reboot.
            opts=pulumi.ResourceOptions(parent=self, depends_on=args.requires, retain_on_delete=True),
        )
        role = NodeRole(
            f"{name}-node",
            NodeRoleArgs(
                names=args.names,
                group=self._plan.name,
                auto_scaling_group=self._plan.auto_scaling_group,
                metric_namespace=METRIC_NAMESPACE,
                kms_key_arn=args.kms_key_arn,
                services_by_endpoint=args.services_by_endpoint,
                permission_boundary_arn=args.permission_boundary_arn,
                requires=args.requires,
            ),
            opts=self._child,
        )
        node = NodeInputs(
            instance_profile_arn=role.instance_profile_arn,
            security_group_id=args.security_group_id,
            user_data=args.boot.user_data,
            kms_key_arn=args.kms_key_arn,
        )
        templates = launch_templates(name, self._plan, node, self._child)
        group = self._auto_scaling_group(templates, [document, *role.ready, *args.requires])
        for hook, transition, result, heartbeat_seconds in HOOKS:
            aws.autoscaling.LifecycleHook(
                f"{name}-{hook}",
                name=hook,
                autoscaling_group_name=group.name,
                lifecycle_transition=transition,
                default_result=result,
                heartbeat_timeout=heartbeat_seconds,
                opts=self._child,
            )
        scheduled_actions(name, group.name, self._plan, self._child)
        self.policy_arns = scaling_policies(name, group.name, self._plan, self._child)
        self.auto_scaling_group_name = group.name
        self.register_outputs({"autoScalingGroupName": self.auto_scaling_group_name})

    def _auto_scaling_group(
        self, templates: Mapping[str, aws.ec2.LaunchTemplate], depends_on: list[pulumi.Resource]
    ) -> aws.autoscaling.Group:
        plan = self._plan
        preferred = templates[plan.instance_types[0]]
        single = aws.autoscaling.GroupLaunchTemplateArgs(id=preferred.id, version=_version(preferred))
        placement = self._placement_group() if plan.cluster_placement else None
        return aws.autoscaling.Group(
            f"{self._name}-group",
            name=plan.auto_scaling_group,
            min_size=plan.min_nodes,
            max_size=plan.max_nodes,
            desired_capacity=plan.desired_nodes,
            vpc_zone_identifiers=self._args.subnet_ids,
            placement_group=placement.name if placement else None,
            launch_template=single if plan.mixed_instances is None else None,
            mixed_instances_policy=self._mixed_instances_policy(templates),
            capacity_rebalance=plan.capacity_rebalance,
            health_check_type="EC2",
            health_check_grace_period=HEALTH_CHECK_GRACE_SECONDS,
            # Capacity may be hours away; alarms wait for it, `pulumi up` does not.
            wait_for_capacity_timeout="0",
            initial_lifecycle_hooks=[
                {
                    "name": hook,
                    "lifecycle_transition": transition,
                    "default_result": result,
                    "heartbeat_timeout": heartbeat_seconds,
                }
                for hook, transition, result, heartbeat_seconds in HOOKS
            ],
            enabled_metrics=GROUP_METRICS,
            metrics_granularity="1Minute",
            instance_refresh=_instance_refresh(plan) if plan.refresh_on_change else None,
            tags=[
                {"key": key, "value": value, "propagate_at_launch": True} for key, value in plan.tags.items()
            ],
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=depends_on,
                delete_before_replace=True,
                custom_timeouts=pulumi.CustomTimeouts(delete=DELETION_LIMIT),
                # The number belongs to whoever scales the group. Suspended launches belong to the circuit breaker and
                # to the budget's stop: a refresh reads them, and the next `up` would resume what they stopped. The
                # initial hooks hold for the first fleet only, and a change of them would replace the group: later
                # changes come by the hook resources.
                ignore_changes=["desiredCapacity", "suspendedProcesses", "initialLifecycleHooks"],
            ),
        )

    def _mixed_instances_policy(
        self, templates: Mapping[str, aws.ec2.LaunchTemplate]
    ) -> aws.autoscaling.GroupMixedInstancesPolicyArgsDict | None:
        mixed = self._plan.mixed_instances
        if mixed is None:
            return None
        preferred = templates[mixed.instance_types[0]]
        overrides: list[aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideArgsDict] = []
        for type_ in mixed.instance_types:
            overrides.append({"instance_type": type_})
            if templates[type_] is not preferred:  # other interfaces than the preferred type's
                overrides[-1]["launch_template_specification"] = _specification(templates[type_])
        return {
            "instances_distribution": {
                "on_demand_allocation_strategy": "prioritized",
                "on_demand_base_capacity": mixed.on_demand_base_nodes,
                "on_demand_percentage_above_base_capacity": mixed.on_demand_percent_above_base,
                "spot_allocation_strategy": mixed.spot_allocation_strategy,
                "spot_max_price": mixed.spot_max_price_usd_per_hour,
            },
            "launch_template": {
                "launch_template_specification": _specification(preferred),
                "overrides": overrides,
            },
        }

    def _placement_group(self) -> aws.ec2.PlacementGroup:
        return aws.ec2.PlacementGroup(
            f"{self._name}-placement",
            name=self._plan.auto_scaling_group,
            strategy="cluster",
            tags={"Name": self._plan.auto_scaling_group},
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )


def _version(template: aws.ec2.LaunchTemplate) -> pulumi.Output[str]:
    """The number, never $Latest: only a number that changes shows as a change of the group, and a refresh that
    fails goes back to a number (terraform-provider-aws#34189).
    """
    return template.latest_version.apply(str)


def _specification(
    template: aws.ec2.LaunchTemplate,
) -> aws.autoscaling.GroupMixedInstancesPolicyLaunchTemplateOverrideLaunchTemplateSpecificationArgsDict:
    return {"launch_template_id": template.id, "version": _version(template)}


def _instance_refresh(plan: GroupPlan) -> aws.autoscaling.GroupInstanceRefreshArgsDict:
    """One node at a time. In a full group the old one leaves, through the terminating hook in which its run saves,
    before a new one comes: scarce capacity would not be found for both at once.

    In a group below its ``max_nodes`` the percentage keeps all, and Auto Scaling then launches the new one first: the
    provider always writes a largest share, 100 if nothing is said, and with one written a group that it cannot replace
    within both shares is one above its desired size for a while (API reference, RefreshPreferences, 2026).
    """
    return {
        "strategy": "Rolling",
        "preferences": {
            "min_healthy_percentage": least_healthy_percent(plan.max_nodes),
            "max_healthy_percentage": 100,
            "skip_matching": True,
            "auto_rollback": plan.rolls_back,
            "scale_in_protected_instances": "Refresh",
            "standby_instances": "Terminate",
        },
    }
