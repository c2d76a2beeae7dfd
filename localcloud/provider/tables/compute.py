"""Launch templates, placement groups and Auto Scaling.

As of 2026-11: pulumi_aws 7.51.1, Terraform AWS provider 6.
"""

from __future__ import annotations

from .build import arn, row

# Changes of a launch template that do not make a new version of it.
_NO_NEW_VERSION = frozenset({"tags", "defaultVersion", "updateDefaultVersion"})

KINDS = (
    row(
        "aws:ec2/launchTemplate:LaunchTemplate",
        "lt-{hex17}",
        {"arn": arn("ec2", "launch-template/{id}"), "latestVersion": 1},
        filled={"defaultVersion": 1},
        replace="namePrefix",
        name="name",
        moves={"latestVersion": _NO_NEW_VERSION, "defaultVersion": _NO_NEW_VERSION},
        moves_only_with={"defaultVersion": "updateDefaultVersion"},
        taggable=True,
        held="realised",
    ),
    row(
        "aws:ec2/placementGroup:PlacementGroup",
        "{name}",
        {"arn": arn("ec2", "placement-group/{name}"), "placementGroupId": "pg-{hex17}"},
        filled={"partitionCount": 0, "spreadLevel": ""},
        replace="strategy partitionCount spreadLevel",
        name="name",
        taggable=True,
        held="realised",
    ),
    # The instance refresh of a changed template is kept as declared: the emulation replaces no running node.
    row(
        "aws:autoscaling/group:Group",
        "{name}",
        {
            "arn": arn("autoscaling", "autoScalingGroup:{uuid}:autoScalingGroupName/{name}"),
            "predictedCapacity": 0,
            "warmPoolSize": 0,
        },
        filled={"desiredCapacity": 0, "healthCheckType": "EC2"},
        replace="namePrefix initialLifecycleHooks",
        name="name",
        held="realised",
    ),
    row(
        "aws:autoscaling/lifecycleHook:LifecycleHook",
        "{name}",
        replace="autoscalingGroupName",
        name="name",
        filled={"defaultResult": "ABANDON"},
        held="realised",
    ),
    # Kept as declared: no alarm of the emulation calls a policy.
    row(
        "aws:autoscaling/policy:Policy",
        "{name}",
        {
            "arn": arn(
                "autoscaling",
                "scalingPolicy:{uuid}:autoScalingGroupName/{in[autoscalingGroupName]}:policyName/{name}",
            )
        },
        filled={"metricAggregationType": "Average"},
        replace="autoscalingGroupName",
        name="name",
    ),
    row(
        "aws:autoscaling/schedule:Schedule",
        "{name}",
        {
            "arn": arn(
                "autoscaling",
                "scheduledUpdateGroupAction:{uuid}:autoScalingGroupName/{in[autoscalingGroupName]}"
                ":scheduledActionName/{name}",
            )
        },
        replace="autoscalingGroupName",
        name="scheduledActionName",
        held="realised",
    ),
)
