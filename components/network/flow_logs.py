"""The log of all flows of a VPC."""

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document, trust_policy
from components.names import StackNames


def declare_flow_logs(
    name: str,
    names: StackNames,
    vpc_id: pulumi.Output[str],
    retention_days: int,
    permission_boundary_arn: str | None,
    key_arn: pulumi.Input[str] | None,
    parent: pulumi.Resource,
) -> None:
    """All flows, accepted and refused, to a log group of their own, kept for ``retention_days``.

    VPC flow logs write with a role that may write to this log group alone, on behalf of this account alone.
    """
    child = pulumi.ResourceOptions(parent=parent)
    log_group_name = f"/{names.base_name}/flow-logs"
    log_group = aws.cloudwatch.LogGroup(
        f"{name}-flow-logs",
        name=log_group_name,
        retention_in_days=retention_days,
        kms_key_id=key_arn,
        opts=child,
    )
    # Spelt out instead of taken from the log group: the role's policy is then known at preview.
    arn = f"arn:{partition(names.region)}:logs:{names.region}:{names.account_id}:log-group:{log_group_name}"
    role = aws.iam.Role(
        f"{name}-flow-logs",
        path=f"/{names.base_name}/",
        assume_role_policy=trust_policy("vpc-flow-logs.amazonaws.com", names.account_id),
        permissions_boundary=permission_boundary_arn,
        opts=child,
    )
    policy = aws.iam.RolePolicy(
        f"{name}-flow-logs",
        role=role.name,
        policy=policy_document(
            [
                {
                    "Effect": "Allow",
                    "Action": ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                    "Resource": [arn, f"{arn}:*"],
                }
            ]
        ),
        opts=child,
    )
    aws.ec2.FlowLog(
        f"{name}-flow-logs",
        vpc_id=vpc_id,
        traffic_type="ALL",
        log_destination_type="cloud-watch-logs",
        log_destination=log_group.arn,
        iam_role_arn=role.arn,
        max_aggregation_interval=60,
        tags={"Name": f"{names.base_name}-flow-logs"},
        opts=pulumi.ResourceOptions(parent=parent, depends_on=[policy]),
    )
