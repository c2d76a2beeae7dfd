"""What a node may do: the calls that its user data, its agent and its root helper make, and no other. Pure.

A test records those calls and compares them with these statements both ways.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from components.bootstrap.node_document import CLUSTER_KEY
from components.iam import allow, listing, partition
from components.names import StackNames
from components.settings import Settings

# Objects below runs/<run>/ that nodes write. Not config.json: what a run is, only a researcher says.
WRITTEN_BY_NODES = (
    *("members/*", "generation.json", "selfcheck/*", "checkpoints/*", "latest", "best", "logs/*"),
    *("result.json", "report.html"),
)
EVERY_SERVICE = "*"


def node_statements(
    names: StackNames, group: str, auto_scaling_group: str, metric_namespace: str
) -> list[dict[str, Any]]:
    """The role of one group's nodes: S3 first, then what answers Auto Scaling, then what reports, then secrets.

    ``group`` is its name in the configuration: nodes see their own group's documents only, and cluster.json.
    ``auto_scaling_group`` is the one group whose launches they answer for, ``metric_namespace`` the one in which they
    put metrics.
    """
    arn = f"arn:{partition(names.region)}"
    artifacts = f"{arn}:s3:::{names.artifacts_bucket}"
    readable = [CLUSTER_KEY, "releases/*", f"groups/{group}/*", "runs/*"]
    if names.lustre_key is not None:
        readable.append(names.lustre_key)
    statements = [
        listing([artifacts], readable),
        allow("s3:GetObject", [f"{artifacts}/{key}" for key in readable]),
        allow(
            "s3:PutObject",
            [f"{artifacts}/groups/{group}/selfcheck/*"]
            + [f"{artifacts}/runs/*/{key}" for key in WRITTEN_BY_NODES],
        ),
        allow("s3:AbortMultipartUpload", [f"{artifacts}/runs/*"]),
        allow("s3:DeleteObject", [f"{artifacts}/runs/*/checkpoints/*"]),
    ]
    if names.dataset_buckets:
        buckets = {name: f"{arn}:s3:::{bucket}" for name, bucket in names.dataset_buckets.items()}
        statements += [
            listing(list(buckets.values()), ["datasets/*"]),
            allow("s3:GetObject", [f"{bucket}/datasets/{name}/*" for name, bucket in buckets.items()]),
        ]
    statements += [
        allow(
            [
                "autoscaling:CompleteLifecycleAction",
                "autoscaling:RecordLifecycleActionHeartbeat",
                "autoscaling:SetInstanceHealth",
                "autoscaling:SuspendProcesses",
                "autoscaling:TerminateInstanceInAutoScalingGroup",
            ],
            [names.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{auto_scaling_group}")],
        ),
        # These know no resources: service authorization references of Auto Scaling, CloudWatch and CloudWatch Logs.
        allow(
            [
                "autoscaling:DescribeAutoScalingInstances",
                "cloudwatch:GetMetricStatistics",
                "logs:DescribeLogGroups",
            ],
            ["*"],
        ),
        {
            **allow("cloudwatch:PutMetricData", ["*"]),
            "Condition": {"StringEquals": {"cloudwatch:namespace": [metric_namespace]}},
        },
        allow(
            ["logs:CreateLogStream", "logs:PutLogEvents"],
            [names.arn("logs", f"log-group:{group}:*") for group in _log_groups(names)],
        ),
        # Session Manager's agent looks at the group before it sends a session there.
        allow("logs:DescribeLogStreams", [names.arn("logs", f"log-group:{names.session_log_group}:*")]),
        allow("sns:Publish", [names.arn("sns", names.runs_topic)]),
    ]
    if names.secrets:
        # Secrets Manager adds a dash and six characters to the name (its user guide, "Secret ARN").
        secrets = [names.arn("secretsmanager", f"secret:{name}-??????") for name in _secret_names(names)]
        statements.append(allow("secretsmanager:GetSecretValue", secrets))
    return statements


def key_statement(key_arn: str, region: str, services: Sequence[str]) -> dict[str, Any]:
    """What lies under the stack's own key is read and written through these services only."""
    return {
        **allow(["kms:Decrypt", "kms:GenerateDataKey"], [key_arn]),
        "Condition": {
            "StringEquals": {"kms:ViaService": [f"{service}.{region}.amazonaws.com" for service in services]}
        },
    }


def services_behind_the_key(names: StackNames) -> list[str]:
    """The services through which nodes meet the stack's key: buckets, the topic of runs, secrets."""
    return ["s3", "sns", *(["secretsmanager"] if names.secrets else [])]


def services_by_endpoint(settings: Settings) -> tuple[str, ...]:
    """The services whose every call from a node goes through a VPC endpoint: ``*`` for all of them.

    S3 has its gateway endpoint in every VPC that the stack makes; the others have one where there is no NAT. What an
    existing VPC has is not known here.
    """
    if settings.network.existing is not None:
        return ()
    return (EVERY_SERVICE,) if settings.network.nat == "none" else ("s3",)


def only_from_the_own_vpc(
    statements: Sequence[dict[str, Any]], services: Collection[str]
) -> list[dict[str, Any]]:
    """Denies what the statements allow to a node's credentials that were carried out of its VPC.

    Possible for calls through VPC endpoints alone: others have no ``aws:SourceVpc``, and would be denied all. The
    form, with its exceptions for other principals and for calls that a service makes for the node, is the IAM user
    guide's (global condition keys, aws:EC2InstanceSourceVPC). Its twin for the address is left out: a node with
    several interfaces calls from any of them, and the key holds the first one's address.
    """
    actions = sorted(
        {
            action
            for statement in statements
            for action in statement["Action"]
            if EVERY_SERVICE in services or action.partition(":")[0] in services
        }
    )
    if not actions:
        return []
    return [
        {
            "Sid": "OnlyFromTheOwnVpc",
            "Effect": "Deny",
            "Action": actions,
            "Resource": ["*"],
            "Condition": {
                "StringNotEquals": {"aws:SourceVpc": "${aws:Ec2InstanceSourceVpc}"},
                "Null": {"ec2:SourceInstanceARN": "false"},
                "BoolIfExists": {"aws:ViaAWSService": "false"},
            },
        }
    ]


def _log_groups(names: StackNames) -> list[str]:
    return [names.node_log_group, names.session_log_group]


def _secret_names(names: StackNames) -> list[str]:
    return sorted(set(names.secrets.values()))
