"""What a researcher may do: the calls of ``trainer dataset`` and ``trainer run``, and no other. Pure.

No EC2, no deploy rights, nothing of a node's own documents. A test records what the commands call and compares it with
these statements both ways. The text is the same for any number of groups and datasets: IAM takes 6144 characters.
"""

from __future__ import annotations

from typing import Any

from components.iam import allow, listing, partition
from components.names import StackNames, stack_tag


def researcher_statements(names: StackNames) -> list[dict[str, Any]]:
    """Publish datasets and wheels; start, stop, resume, watch and fetch runs; ask for the nodes of a run."""
    s3 = f"arn:{partition(names.region)}:s3:::"
    artifacts = f"{s3}{names.artifacts_bucket}"
    pointers, runs, wheels = (
        f"{artifacts}/{key}" for key in ("groups/*/run.json", "runs/*", "releases/user/*")
    )
    bucket = f"{s3}{names.dataset_bucket('*')}"
    datasets = f"{bucket}/datasets/*"
    key, value = stack_tag(names.base_name)
    return [
        listing([artifacts], ["cluster.json", "groups/*", "runs/*", "releases/user/*"]),
        listing([bucket], ["datasets/*"]),
        # An upload is proved by looking the object up, hence wheels.
        allow("s3:GetObject", [f"{artifacts}/cluster.json", pointers, runs, wheels, datasets]),
        # usage.json: what the lives of a run before `trainer run resume` have cost.
        allow(
            "s3:PutObject",
            [pointers, f"{artifacts}/runs/*/config.json", f"{artifacts}/runs/*/usage.json", wheels, datasets],
        ),
        allow("s3:AbortMultipartUpload", [wheels, datasets]),
        # What `trainer run resume` takes away: the old result and the old members' reports.
        allow("s3:DeleteObject", [f"{artifacts}/runs/*/members/*", f"{artifacts}/runs/*/result.json"]),
        {
            # A manifest makes a version and a configuration makes a run: neither is ever replaced, whatever program
            # asks (S3 user guide, "Enforce conditional writes on Amazon S3 buckets").
            "Sid": "WrittenOnce",
            "Effect": "Deny",
            "Action": ["s3:PutObject"],
            "Resource": [f"{artifacts}/runs/*/config.json", f"{bucket}/datasets/*/manifest.json"],
            "Condition": {"Null": {"s3:if-none-match": ["true"]}},
        },
        # Knows no resources: service authorization reference of Auto Scaling.
        allow("autoscaling:DescribeAutoScalingGroups", ["*"]),
        {
            **allow(
                "autoscaling:SetDesiredCapacity",
                [
                    names.arn(
                        "autoscaling",
                        f"autoScalingGroup:*:autoScalingGroupName/{names.auto_scaling_group('*')}",
                    )
                ],
            ),
            # The name alone would also be that of a stack whose own name begins with this one's.
            "Condition": {"StringEquals": {f"autoscaling:ResourceTag/{key}": [value]}},
        },
    ]
