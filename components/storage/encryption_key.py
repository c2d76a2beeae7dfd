"""The stack's own KMS key."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document
from components.names import StackNames, stack_names
from components.settings import Settings

from .buckets import artifacts_are_retained

DELETION_WINDOW_DAYS = 30  # the longest: what is encrypted with a deleted key is lost


@dataclass(frozen=True)
class EncryptionKeyArgs:
    """One key for the buckets, volumes, log groups and topics of a stack."""

    names: StackNames
    """Whose key it is: the alias is alias/<base name>, and this account's roles may use it."""

    retain: bool
    """True: the key is protected and stays when the stack goes, as a retained bucket or file system cannot be
    read without it.
    """


def encryption_key_args(settings: Settings) -> EncryptionKeyArgs:
    """The key of a stack that makes its own."""
    kept_file_system = settings.lustre is not None and settings.lustre.retain
    return EncryptionKeyArgs(
        names=stack_names(settings), retain=artifacts_are_retained(settings) or kept_file_system
    )


class EncryptionKey(pulumi.ComponentResource):
    """A rotating key whose policy lets in whoever must encrypt on the stack's behalf.

    Auto Scaling starts nodes with its service-linked role: without the two statements for it every node with
    a volume under this key dies at launch. The role exists once an account has had any Auto Scaling group; in
    a new account ``aws iam create-service-linked-role --aws-service-name autoscaling.amazonaws.com`` makes
    it.
    """

    key_arn: pulumi.Output[str]
    ready: list[pulumi.Resource]

    def __init__(
        self, name: str, args: EncryptionKeyArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gputraining:storage:EncryptionKey", name, None, opts)
        key = aws.kms.Key(
            f"{name}-key",
            description=f"Buckets, volumes, logs and topics of {args.names.base_name}",
            enable_key_rotation=True,
            deletion_window_in_days=DELETION_WINDOW_DAYS,
            policy=key_policy(args.names),
            tags={"Name": args.names.base_name},
            opts=pulumi.ResourceOptions(parent=self, protect=args.retain, retain_on_delete=args.retain),
        )
        aws.kms.Alias(
            f"{name}-alias",
            name=f"alias/{args.names.base_name}",
            target_key_id=key.key_id,
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=args.retain),
        )
        self.key_arn = key.arn
        self.ready = [key]
        self.register_outputs({"keyArn": self.key_arn})


def key_policy(names: StackNames) -> str:
    """The account, which decides by IAM who else may; Auto Scaling's service-linked role; CloudWatch Logs for this
    stack's log groups; and who publishes alarms and budgets to encrypted topics, for this account.
    """
    arn, account_id = f"arn:{partition(names.region)}", names.account_id
    auto_scaling = {
        "AWS": [
            f"{arn}:iam::{account_id}:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling"
        ]
    }
    use = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"]
    return policy_document(
        [
            {
                "Sid": "AccountThroughIam",
                "Effect": "Allow",
                "Principal": {"AWS": [f"{arn}:iam::{account_id}:root"]},
                "Action": ["kms:*"],
                "Resource": "*",
            },
            {
                "Sid": "AutoScalingUsesVolumes",
                "Effect": "Allow",
                "Principal": auto_scaling,
                "Action": use,
                "Resource": "*",
            },
            {
                "Sid": "AutoScalingAttachesVolumes",
                "Effect": "Allow",
                "Principal": auto_scaling,
                "Action": ["kms:CreateGrant"],
                "Resource": "*",
                "Condition": {"Bool": {"kms:GrantIsForAWSResource": ["true"]}},
            },
            {
                # CloudWatch Logs user guide, "Encrypt log data using KMS": the context names the log group.
                "Sid": "LogGroupsOfThisStack",
                "Effect": "Allow",
                "Principal": {"Service": [f"logs.{names.region}.amazonaws.com"]},
                "Action": use,
                "Resource": "*",
                "Condition": {
                    "ArnLike": {
                        "kms:EncryptionContext:aws:logs:arn": [
                            names.arn("logs", f"log-group:/{names.base_name}/*")
                        ]
                    }
                },
            },
            {
                # SNS developer guide, "Managing encryption keys": without it their messages are dropped silently.
                "Sid": "AlarmsAndBudgetsReachTopics",
                "Effect": "Allow",
                "Principal": {"Service": ["budgets.amazonaws.com", "cloudwatch.amazonaws.com"]},
                "Action": ["kms:Decrypt", "kms:GenerateDataKey*"],
                "Resource": "*",
                "Condition": {"StringEquals": {"aws:SourceAccount": [account_id]}},
            },
            *([_file_system_loads_datasets(names)] if names.lustre_key is not None else []),
        ]
    )


def _file_system_loads_datasets(names: StackNames) -> dict[str, object]:
    """FSx for Lustre user guide, "Working with server-side encrypted Amazon S3 buckets". The role has the file
    system's id in its name, which is not known before the key, hence the pattern. The account as principal would
    leave it to IAM, where a service-linked role has no right to any key and can be given none.
    """
    arn = f"arn:{partition(names.region)}:iam::{names.account_id}"
    role = "role/aws-service-role/s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_*"
    return {
        "Sid": "FileSystemLoadsDatasets",
        "Effect": "Allow",
        "Principal": {"AWS": ["*"]},
        "Action": ["kms:Decrypt", "kms:GenerateDataKey*", "kms:DescribeKey"],
        "Resource": "*",
        "Condition": {
            "StringEquals": {
                "kms:CallerAccount": [names.account_id],
                "kms:ViaService": [f"s3.{names.region}.amazonaws.com"],
            },
            "ArnLike": {"aws:PrincipalArn": [f"{arn}:{role}"]},
        },
    }
