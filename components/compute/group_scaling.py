"""What changes a group's size by itself, as resources: scheduled actions, and policies for alarms to call."""

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from .plan import GroupPlan
from .scaling import Step, always

FALLBACK_RAISE, FALLBACK_END, IDLE_STOP = "fallback-raise", "fallback-end", "idle-stop"


def scheduled_actions(
    name: str, group_name: pulumi.Input[str], plan: GroupPlan, opts: pulumi.ResourceOptions
) -> None:
    # Made anew at any change: an update sends the start time that Auto Scaling had worked out long ago, and is refused
    # since that is past, or skips to it (pulumi-aws#2473, terraform-provider-aws#38983).
    anew = pulumi.ResourceOptions(replace_on_changes=["*"], delete_before_replace=True)
    for action in plan.schedules:
        aws.autoscaling.Schedule(
            f"{name}-schedule-{action.name}",
            scheduled_action_name=action.name,
            autoscaling_group_name=group_name,
            min_size=action.min_nodes,
            max_size=action.max_nodes,
            desired_capacity=action.desired_nodes,
            recurrence=action.recurrence,
            time_zone=action.time_zone,
            start_time=action.start_time,
            opts=pulumi.ResourceOptions.merge(opts, anew),
        )


def scaling_policies(
    name: str, group_name: pulumi.Input[str], plan: GroupPlan, opts: pulumi.ResourceOptions
) -> dict[str, pulumi.Output[str]]:
    """The ARNs of the group's policies by role; only those that the plan asks for are there."""
    wanted: dict[str, tuple[Step, ...]] = {}
    if plan.fallback_steps:
        wanted[FALLBACK_RAISE] = plan.fallback_steps
        wanted[FALLBACK_END] = always(plan.min_nodes)
    if plan.idle_stop_minutes is not None:
        wanted[IDLE_STOP] = always(0)
    return {role: _exact_capacity(name, role, group_name, steps, opts) for role, steps in wanted.items()}


def _exact_capacity(
    name: str,
    role: str,
    group_name: pulumi.Input[str],
    steps: Sequence[Step],
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str]:
    # Steps and not a simple policy: that one ignores an alarm while it cools down, and the end of an alarm is
    # told once.
    return aws.autoscaling.Policy(
        f"{name}-{role}",
        name=role,
        autoscaling_group_name=group_name,
        policy_type="StepScaling",
        adjustment_type="ExactCapacity",
        metric_aggregation_type="Average",
        # A node counts at once: its boot and self-check lie before it is in service, behind the launching hook.
        estimated_instance_warmup=0,
        step_adjustments=[
            {
                "metric_interval_lower_bound": _text(step.lower),
                "metric_interval_upper_bound": _text(step.upper),
                "scaling_adjustment": step.nodes,
            }
            for step in steps
        ],
        opts=opts,
    ).arn


def _text(bound: float | None) -> str | None:
    return None if bound is None else f"{bound:g}"
