"""What a node may do: the calls that its user data and its agent make, and no other."""

from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document, trust_policy
from components.names import StackNames

# Objects below runs/<run>/ that nodes write. Not config.json: what a run is, only a researcher says.
WRITTEN_BY_NODES = (
    *(
        "members/*",
        "generation.json",
        "selfcheck/*",
        "checkpoints/*",
        "latest",
        "best",
        "logs/*",
        "result.json",
    ),
    "report.html",
)


@dataclass(frozen=True)
class NodeRoleArgs:
    """Whose nodes they are and what they work on. Names are plain, so that the rights show in a preview."""

    names: StackNames
    """The buckets and the log group that the nodes work with, and where these are."""

    group: str
    """The group's name in the configuration: nodes see their own group's documents only."""

    auto_scaling_group: str
    """The one group whose launches the nodes answer for and may suspend."""

    metric_namespace: str
    """The one CloudWatch namespace in which nodes put metrics."""

    kms_key_arn: pulumi.Input[str] | None = None
    """Key of the buckets. None: S3's own key of the account, which needs no right."""

    permission_boundary_arn: str | None = None
    """The policy that bounds the role. None: no boundary."""


class NodeRole(pulumi.ComponentResource):
    """Role, its one inline policy, the right to be reached by Session Manager, and the instance profile."""

    role_arn: pulumi.Output[str]
    instance_profile_arn: pulumi.Output[str]
    ready: list[pulumi.Resource]  # the rights, without which a node that boots would be refused

    def __init__(self, name: str, args: NodeRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:compute:NodeRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        # Names that are fixed: policies of the account can speak of them, and a replacement frees them first.
        fixed_name = pulumi.ResourceOptions(parent=self, delete_before_replace=True)
        role = aws.iam.Role(
            f"{name}-role",
            name=f"{args.names.base_name}-{args.group}-node",
            path=f"/{args.names.base_name}/",
            description=f"Nodes of GPU group {args.group}",
            assume_role_policy=trust_policy("ec2.amazonaws.com"),
            permissions_boundary=args.permission_boundary_arn,
            opts=fixed_name,
        )
        self.ready = [
            aws.iam.RolePolicy(
                f"{name}-policy",
                name="node",
                role=role.name,
                policy=policy_document(node_statements(args)),
                opts=child,
            ),
            # Session Manager without the right to read every parameter, which the better known policy gives.
            aws.iam.RolePolicyAttachment(
                f"{name}-session-manager",
                role=role.name,
                policy_arn=f"arn:{partition(args.names.region)}:iam::aws:policy/AmazonSSMManagedEC2InstanceDefaultPolicy",
                opts=child,
            ),
        ]
        if args.kms_key_arn is not None:
            # Apart from the rest, whose text stays known at preview when the key is still to be made.
            self.ready.append(
                aws.iam.RolePolicy(
                    f"{name}-key",
                    name="key",
                    role=role.name,
                    policy=pulumi.Output.from_input(args.kms_key_arn).apply(
                        lambda key_arn: policy_document([key_statement(key_arn, args.names.region)])
                    ),
                    opts=child,
                )
            )
        profile = aws.iam.InstanceProfile(
            f"{name}-profile",
            name=f"{args.names.base_name}-{args.group}-node",
            path=f"/{args.names.base_name}/",
            role=role.name,
            opts=fixed_name,
        )
        self.role_arn = role.arn
        self.instance_profile_arn = profile.arn
        self.register_outputs({"roleArn": self.role_arn})


def node_statements(args: NodeRoleArgs) -> list[dict[str, Any]]:
    """The statements of the inline policy; S3 first, then what answers Auto Scaling, then what reports."""
    arn = f"arn:{partition(args.names.region)}"
    artifacts = f"{arn}:s3:::{args.names.artifacts_bucket}"
    regional = f"{args.names.region}:{args.names.account_id}"
    readable = ["releases/*", f"groups/{args.group}/*", "runs/*"]
    statements = [
        _list(artifacts, readable),
        _allow("s3:GetObject", [f"{artifacts}/{key}" for key in readable]),
        _allow(
            "s3:PutObject",
            [f"{artifacts}/groups/{args.group}/selfcheck/*"]
            + [f"{artifacts}/runs/*/{key}" for key in WRITTEN_BY_NODES],
        ),
        _allow("s3:AbortMultipartUpload", [f"{artifacts}/runs/*"]),
        _allow("s3:DeleteObject", [f"{artifacts}/runs/*/checkpoints/*"]),
    ]
    for dataset, bucket in args.names.dataset_buckets.items():
        keys = f"datasets/{dataset}/*"
        statements += [
            _list(f"{arn}:s3:::{bucket}", [keys]),
            _allow("s3:GetObject", [f"{arn}:s3:::{bucket}/{keys}"]),
        ]
    group = f"{arn}:autoscaling:{regional}:autoScalingGroup:*:autoScalingGroupName/{args.auto_scaling_group}"
    log_group = f"{arn}:logs:{regional}:log-group:{args.names.node_log_group}"
    return [
        *statements,
        _allow(
            [
                "autoscaling:CompleteLifecycleAction",
                "autoscaling:RecordLifecycleActionHeartbeat",
                "autoscaling:SetInstanceHealth",
                "autoscaling:SuspendProcesses",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            [group],
        ),
        # These know no resources: service authorization reference of Auto Scaling and CloudWatch.
        _allow(
            [
                "autoscaling:DescribeAutoScalingInstances",
                "cloudwatch:GetMetricStatistics",
            ],
            ["*"],
        ),
        {
            **_allow("cloudwatch:PutMetricData", ["*"]),
            "Condition": {"StringEquals": {"cloudwatch:namespace": [args.metric_namespace]}},
        },
        _allow(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{log_group}:*"]),
    ]


def key_statement(key_arn: str, region: str) -> dict[str, Any]:
    """Objects under the stack's own key are read and written through S3 only."""
    return {
        **_allow(["kms:Decrypt", "kms:GenerateDataKey"], [key_arn]),
        "Condition": {"StringEquals": {"kms:ViaService": [f"s3.{region}.amazonaws.com"]}},
    }


def _list(bucket_arn: str, prefixes: list[str]) -> dict[str, Any]:
    """The right to list; without it S3 answers 403 where an object is absent, and absent is an answer nodes
    wait for. That answer is given for a request without a prefix, hence IfExists.
    """
    return {
        **_allow("s3:ListBucket", [bucket_arn]),
        "Condition": {"StringLikeIfExists": {"s3:prefix": prefixes}},
    }


def _allow(actions: str | list[str], resources: list[str]) -> dict[str, Any]:
    return {
        "Effect": "Allow",
        "Action": [actions] if isinstance(actions, str) else actions,
        "Resource": resources,
    }
