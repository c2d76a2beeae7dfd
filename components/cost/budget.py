"""The budget of a stack, and what stops its groups when it is used up."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pulumi_aws as aws

from components.iam import policy_document, trust_policy
from components.names import StackNames, stack_names
from components.settings import Settings

from .budget_plan import BudgetPlan, plan_budget

PROGRAM = Path(__file__).with_name("budget_stop.py")
FUNCTION_SECONDS = 120  # two calls a group
EVENT_SECONDS = 6 * 3600  # Lambda's longest: how long a message may wait for a run that succeeds


@dataclass(frozen=True)
class StackBudgetArgs:
    """What is watched and who is told."""

    names: StackNames
    """Account, region and names of the stack."""

    plan: BudgetPlan
    """The budget itself."""

    alerts_topic_arn: pulumi.Input[str]
    """Where a stop that failed is told."""

    retention_days: int
    """Days that the function's log is kept."""

    kms_key_arn: pulumi.Input[str] | None = None
    """Key of the stop's topic and log, whose policy lets Budgets and CloudWatch Logs in. None: no key of its own."""

    permission_boundary_arn: str | None = None
    """The policy that bounds the function's role. None: no boundary."""


def budget_args(
    settings: Settings, alerts_topic_arn: pulumi.Input[str], key_arn: pulumi.Input[str] | None
) -> StackBudgetArgs | None:
    """None where the stack has no budget; ``key_arn`` is the stack's own key, if it has one."""
    plan = plan_budget(settings)
    if plan is None:
        return None
    return StackBudgetArgs(
        names=stack_names(settings),
        plan=plan,
        alerts_topic_arn=alerts_topic_arn,
        retention_days=settings.monitoring.retention_days,
        kms_key_arn=key_arn,
        permission_boundary_arn=settings.permission_boundary_arn,
    )


class StackBudget(pulumi.ComponentResource):
    """A monthly AWS budget over the stack's tag; with a stop, a topic and a small function behind it.

    AWS bills with hours of delay, and the tag counts only once it is activated as a cost allocation tag: this is the
    last stop and not the first.
    """

    def __init__(self, name: str, args: StackBudgetArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:cost:StackBudget", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        plan = args.plan
        topic, ready = self._stop(plan.stop_name) if plan.stop_name else (None, [])
        aws.budgets.Budget(
            f"{name}-budget",
            name=plan.name,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=plan.limit_usd,
            limit_unit="USD",
            cost_filters=[{"name": "TagKeyValue", "values": [plan.tag_filter]}],
            notifications=[
                aws.budgets.BudgetNotificationArgs(
                    notification_type=one.of,
                    comparison_operator="GREATER_THAN",
                    threshold=one.percent,
                    threshold_type="PERCENTAGE",
                    subscriber_email_addresses=list(plan.emails),
                    subscriber_sns_topic_arns=[topic.arn] if topic and one.stops else None,
                )
                for one in plan.notifications
            ],
            tags={"Name": plan.name},
            # Budgets tries the topic when it is subscribed: its policy must let Budgets in by then.
            opts=pulumi.ResourceOptions(parent=self, depends_on=ready),
        )
        self.register_outputs({"stopTopicArn": topic.arn if topic else None})

    def _stop(self, stop: str) -> tuple[aws.sns.Topic, list[pulumi.Resource]]:
        """The topic that Budgets publishes to, with the function that it calls."""
        name, args, names = self._name, self._args, self._args.names
        topic = aws.sns.Topic(
            f"{name}-stop",
            name=stop,
            kms_master_key_id=args.kms_key_arn,
            tags={"Name": stop},
            opts=self._child,
        )
        policy = aws.sns.TopicPolicy(
            f"{name}-stop-policy",
            arn=topic.arn,
            policy=policy_document(topic_statements(names, stop)),
            opts=self._child,
        )
        log_group = aws.cloudwatch.LogGroup(
            f"{name}-stop-log",
            name=f"/{names.base_name}/budget-stop",
            retention_in_days=args.retention_days,
            kms_key_id=args.kms_key_arn,
            tags={"Name": f"/{names.base_name}/budget-stop"},
            opts=self._child,
        )
        role, rights = self._role(stop)
        function = aws.lambda_.Function(
            f"{name}-stop-function",
            name=stop,
            description="Sets the stack's groups to zero nodes and suspends their launches",
            runtime="python3.12",
            architectures=["arm64"],
            handler=f"{PROGRAM.stem}.handler",
            code=pulumi.AssetArchive({PROGRAM.name: pulumi.StringAsset(PROGRAM.read_text("utf-8"))}),
            role=role.arn,
            timeout=FUNCTION_SECONDS,
            environment={"variables": {"GROUPS": json.dumps(args.plan.groups, sort_keys=True)}},
            logging_config={"log_format": "Text", "log_group": log_group.name},
            tags={"Name": stop},
            opts=pulumi.ResourceOptions(parent=self, depends_on=rights),
        )
        aws.lambda_.FunctionEventInvokeConfig(
            f"{name}-stop-retries",
            function_name=function.name,
            maximum_retry_attempts=2,
            maximum_event_age_in_seconds=EVENT_SECONDS,
            destination_config={"on_failure": {"destination": args.alerts_topic_arn}},
            opts=self._child,
        )
        allowed = aws.lambda_.Permission(
            f"{name}-stop-permission",
            statement_id="BudgetTopic",
            action="lambda:InvokeFunction",
            function=function.name,
            principal="sns.amazonaws.com",
            source_arn=topic.arn,
            opts=self._child,
        )
        subscription = aws.sns.TopicSubscription(
            f"{name}-stop-subscription",
            topic=topic.arn,
            protocol="lambda",
            endpoint=function.arn,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[allowed]),
        )
        return topic, [policy, subscription]

    def _role(self, stop: str) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
        """The function's role and its rights, which it needs before its first run."""
        name, args = self._name, self._args
        role = aws.iam.Role(
            f"{name}-stop-role",
            name=stop,
            path=f"/{args.names.base_name}/",
            description="The function that stops the stack's groups when its budget is used up",
            # Without a condition on the account: Lambda's guide promises no aws:SourceAccount here, and a function
            # can only be given a role of its own account.
            assume_role_policy=trust_policy("lambda.amazonaws.com"),
            permissions_boundary=args.permission_boundary_arn,
            opts=pulumi.ResourceOptions(parent=self, delete_before_replace=True),
        )
        rights: list[pulumi.Resource] = [
            aws.iam.RolePolicy(
                f"{name}-stop-rights",
                name="stop",
                role=role.name,
                policy=policy_document(stop_statements(args.names, list(args.plan.groups))),
                opts=self._child,
            ),
            # Apart from the rest, whose text stays known at preview where topic and key are still to be made.
            aws.iam.RolePolicy(
                f"{name}-stop-failures",
                name="failures",
                role=role.name,
                policy=pulumi.Output.all(args.alerts_topic_arn, args.kms_key_arn).apply(
                    lambda arns: policy_document(failure_statements(args.names, arns[0], arns[1]))
                ),
                opts=self._child,
            ),
        ]
        return role, rights


def topic_statements(names: StackNames, topic: str) -> list[dict[str, Any]]:
    """Budgets of this account publish (AWS Cost Management user guide, "Creating an Amazon SNS topic for budget
    notifications"), and nobody does in the clear.
    """
    arn = names.arn("sns", topic)
    return [
        {
            "Sid": "BudgetsOfThisAccount",
            "Effect": "Allow",
            "Principal": {"Service": ["budgets.amazonaws.com"]},
            "Action": ["sns:Publish"],
            "Resource": [arn],
            "Condition": {
                "StringEquals": {"aws:SourceAccount": [names.account_id]},
                "ArnLike": {"aws:SourceArn": [f"{arn.partition(':sns:')[0]}:budgets::{names.account_id}:*"]},
            },
        },
        {
            "Sid": "TlsOnly",
            "Effect": "Deny",
            "Principal": "*",
            "Action": ["sns:Publish"],
            "Resource": [arn],
            "Condition": {"Bool": {"aws:SecureTransport": ["false"]}},
        },
    ]


def stop_statements(names: StackNames, groups: list[str]) -> list[dict[str, Any]]:
    """The two calls that stop a group, on the stack's groups, and the function's own log."""
    return [
        {
            "Effect": "Allow",
            "Action": ["autoscaling:SuspendProcesses", "autoscaling:UpdateAutoScalingGroup"],
            "Resource": [
                names.arn("autoscaling", f"autoScalingGroup:*:autoScalingGroupName/{group}")
                for group in groups
            ],
        },
        {
            "Effect": "Allow",
            "Action": ["logs:CreateLogStream", "logs:PutLogEvents"],
            "Resource": [names.arn("logs", f"log-group:/{names.base_name}/budget-stop:*")],
        },
    ]


def failure_statements(names: StackNames, alerts_topic_arn: str, key_arn: str | None) -> list[dict[str, Any]]:
    """A run that failed for good is told on the alerts topic, which the stack's key may encrypt."""
    statements: list[dict[str, Any]] = [
        {"Effect": "Allow", "Action": ["sns:Publish"], "Resource": [alerts_topic_arn]}
    ]
    if key_arn:
        statements.append(
            {
                "Effect": "Allow",
                "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
                "Resource": [key_arn],
                "Condition": {"StringEquals": {"kms:ViaService": [f"sns.{names.region}.amazonaws.com"]}},
            }
        )
    return statements
