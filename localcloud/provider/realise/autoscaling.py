"""Auto Scaling groups, lifecycle hooks and schedules."""

from __future__ import annotations

from typing import Any

from .call import Call, Made, Realiser, first

_RENAME = {
    "name": "AutoScalingGroupName",
    "launchTemplate.id": "LaunchTemplateId",
    "launchTemplate.name": "LaunchTemplateName",
    "initialLifecycleHooks": "LifecycleHookSpecificationList",
    "initialLifecycleHooks.name": "LifecycleHookName",
    "initialLifecycleHooks.notificationTargetArn": "NotificationTargetARN",
    "protectFromScaleIn": "NewInstancesProtectedFromScaleIn",
}
# Waiting, refreshing and deleting are the provider's own business and no part of the API's create or update
# call; an instance refresh is kept as declared, since the emulation replaces no running node.
_NOT_IN_CALL = (
    "enabledMetrics",
    "forceDelete",
    "forceDeleteWarmPool",
    "ignoreFailedScalingActivities",
    "instanceRefresh",
    "metricsGranularity",
    "minElbCapacity",
    "namePrefix",
    "suspendedProcesses",
    "waitForCapacityTimeout",
    "waitForElbCapacity",
    "vpcZoneIdentifiers",
)


def _parameters(call: Call, operation: str, *leave: str) -> dict[str, Any]:
    wanted = call.fit("autoscaling", operation, _RENAME, *_NOT_IN_CALL, *leave)
    if call["vpcZoneIdentifiers"]:
        wanted["VPCZoneIdentifier"] = ",".join(call["vpcZoneIdentifiers"])
    return {**wanted, "AutoScalingGroupName": call.name}


def _group_tags(call: Call, inputs: Any) -> dict[str, dict[str, Any]]:
    return {
        tag["key"]: {
            "Key": tag["key"],
            "Value": tag["value"],
            "PropagateAtLaunch": bool(tag["propagateAtLaunch"]),
            "ResourceId": call.name,
            "ResourceType": "auto-scaling-group",
        }
        for tag in inputs.get("tags") or []
    }


def _group_create(call: Call) -> Made:
    client = call.clients("autoscaling")
    client.create_auto_scaling_group(
        **_parameters(call, "CreateAutoScalingGroup"), Tags=list(_group_tags(call, call.inputs).values())
    )
    _processes(call)
    found = _read(call)
    real = {
        "arn": found["AutoScalingGroupARN"],
        "desiredCapacity": found["DesiredCapacity"],
        "healthCheckType": found["HealthCheckType"],
    }
    return call.name, real


def _processes(call: Call) -> None:
    """Suspend what is declared so, resume what no longer is, and collect the declared metrics."""
    client = call.clients("autoscaling")
    wanted, before = (
        set(call["suspendedProcesses"] or []),
        set(call.old_inputs.get("suspendedProcesses") or []),
    )
    if wanted - before:
        client.suspend_processes(AutoScalingGroupName=call.name, ScalingProcesses=sorted(wanted - before))
    if before - wanted:
        client.resume_processes(AutoScalingGroupName=call.name, ScalingProcesses=sorted(before - wanted))
    if call["enabledMetrics"] and call.changed("enabledMetrics"):
        client.enable_metrics_collection(
            AutoScalingGroupName=call.name, Metrics=call["enabledMetrics"], Granularity="1Minute"
        )


def _group_update(call: Call) -> dict[str, Any]:
    client = call.clients("autoscaling")
    unchanged = () if call.changed("desiredCapacity") else ("desiredCapacity",)
    client.update_auto_scaling_group(
        **_parameters(call, "UpdateAutoScalingGroup", "initialLifecycleHooks", *unchanged)
    )
    old, new = _group_tags(call, call.old_inputs), _group_tags(call, call.inputs)
    changed = [tag for key, tag in new.items() if old.get(key) != tag]
    gone = [tag for key, tag in old.items() if key not in new]
    if changed:
        client.create_or_update_tags(Tags=changed)
    if gone:
        client.delete_tags(Tags=gone)
    _processes(call)
    return {"desiredCapacity": _read(call)["DesiredCapacity"]}


def _read(call: Call) -> Any:
    found = call.clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[call.name])
    return first(found["AutoScalingGroups"])


def _group_delete(call: Call) -> None:
    """With its instances, without waiting for them: the nodes' driver sees them terminate."""
    call.clients("autoscaling").delete_auto_scaling_group(AutoScalingGroupName=call.name, ForceDelete=True)


_HOOK = {"name": "LifecycleHookName", "notificationTargetArn": "NotificationTargetARN"}


def _hook_put(call: Call) -> None:
    wanted = call.fit("autoscaling", "PutLifecycleHook", _HOOK)
    call.clients("autoscaling").put_lifecycle_hook(**{**wanted, "LifecycleHookName": call.name})


def _hook_create(call: Call) -> Made:
    _hook_put(call)
    return call.name, {}


def _hook_read(call: Call) -> Any:
    found = call.clients("autoscaling").describe_lifecycle_hooks(
        AutoScalingGroupName=call.state("autoscalingGroupName"), LifecycleHookNames=[call.name]
    )
    return first(found["LifecycleHooks"])


def _hook_delete(call: Call) -> None:
    call.clients("autoscaling").delete_lifecycle_hook(
        LifecycleHookName=call.name, AutoScalingGroupName=call.state("autoscalingGroupName")
    )


def _schedule_put(call: Call) -> None:
    sizes = ("minSize", "maxSize", "desiredCapacity")
    # -1 is the provider's word for a size that stays; the API's is to say nothing.
    unchanged = [size for size in sizes if call[size] == -1]
    wanted = call.fit("autoscaling", "PutScheduledUpdateGroupAction", None, *unchanged)
    call.clients("autoscaling").put_scheduled_update_group_action(
        **{**wanted, "ScheduledActionName": call.name}
    )


def _schedule_create(call: Call) -> Made:
    _schedule_put(call)
    return call.name, {}


def _schedule_read(call: Call) -> Any:
    found = call.clients("autoscaling").describe_scheduled_actions(
        AutoScalingGroupName=call.state("autoscalingGroupName"), ScheduledActionNames=[call.name]
    )
    return first(found["ScheduledUpdateGroupActions"])


def _schedule_delete(call: Call) -> None:
    call.clients("autoscaling").delete_scheduled_action(
        ScheduledActionName=call.name, AutoScalingGroupName=call.state("autoscalingGroupName")
    )


REALISERS: dict[str, Realiser] = {
    "aws:autoscaling/group:Group": Realiser(_group_create, _group_delete, _read, _group_update),
    "aws:autoscaling/lifecycleHook:LifecycleHook": Realiser(
        _hook_create, _hook_delete, _hook_read, _hook_put
    ),
    "aws:autoscaling/schedule:Schedule": Realiser(
        _schedule_create, _schedule_delete, _schedule_read, _schedule_put
    ),
}
