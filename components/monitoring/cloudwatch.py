"""Logs, alarms and the topic that tells people: what needs no Kubernetes cluster."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document

from .alarms import NAMESPACE, RUNBOOK, Alarm, dashboard_body, group_alarms


@dataclass(frozen=True)
class AlarmActions:
    """ARNs of what CloudWatch calls. Scaling policies are called again each minute while the alarm lasts."""

    in_alarm: Sequence[pulumi.Input[str]] = ()
    when_over: Sequence[pulumi.Input[str]] = ()


@dataclass(frozen=True)
class WatchedGroup:
    """An Auto Scaling group as the alarms see it."""

    auto_scaling_group: str
    """The group's name in AWS, plain; its metrics collection must be enabled."""

    buys_spot: bool
    """True: a part of its nodes is spot, and a lasting shortage gets an alarm of its own."""

    idle_stop_minutes: int | None = None
    """Minutes without training after which an alarm calls the policy that scales to zero. None: no such alarm."""

    fallback_group: str | None = None
    """The Auto Scaling group whose nodes train in the place of this one's, plain. None: there is none."""

    actions: Mapping[str, AlarmActions] = field(default_factory=dict)
    """By the alarm's role, what it does besides telling people. Empty: nothing."""

    requires: Sequence[pulumi.Resource] = ()
    """The groups themselves: before they exist there are no counts, and an alarm that takes this for a fault would call
    people at each creation and at each deletion of a stack.
    """


@dataclass(frozen=True)
class CloudWatchArgs:
    """What is logged, watched and told to whom."""

    base_name: str
    """Prefix and stack; names of the topic, the log group, the dashboard and the alarms begin with it."""

    account_id: str
    """The twelve digits of the account; nobody else's alarms may publish to the topic."""

    region: str
    """The region of the groups."""

    auto_scaling_groups: list[str]
    """Names of the groups on the dashboard."""

    retention_days: int
    """Days after which the nodes' logs expire; one of the values that CloudWatch Logs accepts."""

    alert_emails: list[str]
    """Addresses that get every alarm, after the owner confirmed the subscription. Empty: the topic alone."""

    key_arn: pulumi.Input[str] | None = None
    """Key of the log group and of the topic, whose policy lets both services in. None: CloudWatch's own encryption,
    and a topic without.
    """

    sns_topic_arn: str | None = None
    """A topic that exists already and lets CloudWatch publish. None: the stack makes its own."""


class CloudWatch(pulumi.ComponentResource):
    """Log group, topic, alarms and a dashboard in CloudWatch.

    The alarms come by `watch`: nodes need the log group before their group exists, and alarms call policies that
    exist only after it.
    """

    alerts_topic_arn: pulumi.Output[str]
    log_group_name: str
    dashboard_url: str
    ready: list[pulumi.Resource]  # the log group that nodes write to

    def __init__(self, name: str, args: CloudWatchArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:monitoring:CloudWatch", name, None, opts)
        self._name, self._args = name, args
        self._child = pulumi.ResourceOptions(parent=self)
        self.log_group_name = f"/{args.base_name}/nodes"
        self.ready = [
            aws.cloudwatch.LogGroup(
                f"{name}-nodes",
                name=self.log_group_name,
                retention_in_days=args.retention_days,
                kms_key_id=args.key_arn,
                tags={"Name": self.log_group_name},
                opts=self._child,
            )
        ]
        self.alerts_topic_arn = pulumi.Output.from_input(args.sns_topic_arn or self._topic())
        for email in args.alert_emails:
            aws.sns.TopicSubscription(
                f"{name}-email-{email}",
                topic=self.alerts_topic_arn,
                protocol="email",
                endpoint=email,
                opts=self._child,
            )
        dashboard = f"{args.base_name}-nodes"
        aws.cloudwatch.Dashboard(
            f"{name}-dashboard",
            dashboard_name=dashboard,
            dashboard_body=json.dumps(
                dashboard_body(region=args.region, auto_scaling_groups=args.auto_scaling_groups),
                sort_keys=True,
            ),
            opts=self._child,
        )
        self.dashboard_url = _console_url(args.region, dashboard)
        self.register_outputs({"alertsTopicArn": self.alerts_topic_arn, "dashboardUrl": self.dashboard_url})

    def watch(self, groups: Iterable[WatchedGroup]) -> None:
        """Declare the alarms of the groups."""
        for group in groups:
            for alarm in group_alarms(
                group.auto_scaling_group,
                buys_spot=group.buys_spot,
                idle_stop_minutes=group.idle_stop_minutes,
                fallback_group=group.fallback_group,
            ):
                self._alarm(group, alarm)

    def _topic(self) -> pulumi.Output[str]:
        """A topic that only this account's alarms, and what the account allows by IAM, publish to.

        Without a key of the stack's own it is not encrypted: the policy of the account's default key shuts CloudWatch
        out, and alarms would be dropped without a word. Messages hold names and counts only.
        """
        args = self._args
        topic_name = f"{args.base_name}-alerts"
        topic = aws.sns.Topic(
            f"{self._name}-alerts",
            name=topic_name,
            kms_master_key_id=args.key_arn,
            tags={"Name": topic_name},
            opts=self._child,
        )
        arn = f"arn:{partition(args.region)}:sns:{args.region}:{args.account_id}:{topic_name}"
        aws.sns.TopicPolicy(
            f"{self._name}-alerts-policy",
            arn=topic.arn,
            policy=policy_document(
                [
                    {
                        "Sid": "AlarmsOfThisAccount",
                        "Effect": "Allow",
                        "Principal": {"Service": ["cloudwatch.amazonaws.com"]},
                        "Action": ["sns:Publish"],
                        "Resource": [arn],
                        "Condition": {"StringEquals": {"aws:SourceAccount": [args.account_id]}},
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
            ),
            opts=self._child,
        )
        return topic.arn

    def _alarm(self, watched: WatchedGroup, alarm: Alarm) -> None:
        group, actions = watched.auto_scaling_group, watched.actions.get(alarm.role, AlarmActions())
        if alarm.event is not None:
            what = {
                "namespace": NAMESPACE,
                "metric_name": alarm.event,
                "dimensions": {"AutoScalingGroupName": group},
                "statistic": "Sum",
                "period": alarm.period_seconds,
                "threshold": 1,
                "comparison_operator": "GreaterThanOrEqualToThreshold",
            }
        else:
            metrics = [
                {
                    "id": metric.id,
                    "metric": {
                        "namespace": metric.namespace,
                        "metric_name": metric.name,
                        "dimensions": {"AutoScalingGroupName": metric.of or group},
                        "stat": metric.statistic,
                        "period": alarm.period_seconds,
                    },
                    "return_data": False,
                }
                for metric in alarm.metrics
            ]
            wanted = {
                "id": "judged",
                "expression": alarm.expression,
                "label": alarm.label,
                "return_data": True,
            }
            what = {
                "metric_queries": [*metrics, wanted],
                "threshold": 0,
                "comparison_operator": "GreaterThanThreshold",
            }
        aws.cloudwatch.MetricAlarm(
            f"{self._name}-{group}-{alarm.role}",
            name=f"{group}-{alarm.role}",
            alarm_description=f"{alarm.description} {RUNBOOK}{alarm.role}",
            evaluation_periods=alarm.evaluation_periods,
            datapoints_to_alarm=alarm.datapoints_to_alarm,
            treat_missing_data=alarm.treat_missing_data,
            alarm_actions=[self.alerts_topic_arn, *actions.in_alarm],
            ok_actions=[*([self.alerts_topic_arn] if alarm.end_is_told else []), *actions.when_over],
            tags={"Name": f"{group}-{alarm.role}"},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*watched.requires]),
            **what,
        )


def _console_url(region: str, dashboard: str) -> str:
    domain = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}.get(
        partition(region), "console.aws.amazon.com"
    )
    return f"https://{region}.{domain}/cloudwatch/home?region={region}#dashboards/dashboard/{dashboard}"
