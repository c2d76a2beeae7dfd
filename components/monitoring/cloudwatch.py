"""Logs, alarms and the topic that tells people: what needs no Kubernetes cluster."""

import json
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from components.iam import partition, policy_document

from .alarms import NAMESPACE, RUNBOOK, Alarm, dashboard_body, group_alarms


@dataclass(frozen=True)
class WatchedGroup:
    """An Auto Scaling group as the alarms see it."""

    auto_scaling_group: str
    """The group's name in AWS, plain; its metrics collection must be enabled."""

    buys_spot: bool
    """True: a part of its nodes is spot, and a lasting shortage gets an alarm of its own."""


@dataclass(frozen=True)
class CloudWatchArgs:
    """What is logged, watched and told to whom."""

    base_name: str
    """Prefix and stack; names of the topic, the log group, the dashboard and the alarms begin with it."""

    account_id: str
    """The twelve digits of the account; nobody else's alarms may publish to the topic."""

    region: str
    """The region of the groups."""

    groups: list[WatchedGroup]
    """The groups; each gets its own alarms."""

    retention_days: int
    """Days after which the nodes' logs expire; one of the values that CloudWatch Logs accepts."""

    alert_emails: list[str]
    """Addresses that get every alarm, after the owner confirmed the subscription. Empty: the topic alone."""

    sns_topic_arn: str | None = None
    """A topic that exists already and lets CloudWatch publish. None: the stack makes its own."""


class CloudWatch(pulumi.ComponentResource):
    """Log group, topic, alarms and a dashboard in CloudWatch."""

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
        for group in args.groups:
            for alarm in group_alarms(group.auto_scaling_group, buys_spot=group.buys_spot):
                self._alarm(group.auto_scaling_group, alarm)
        dashboard = f"{args.base_name}-nodes"
        names = [group.auto_scaling_group for group in args.groups]
        aws.cloudwatch.Dashboard(
            f"{name}-dashboard",
            dashboard_name=dashboard,
            dashboard_body=json.dumps(
                dashboard_body(region=args.region, auto_scaling_groups=names), sort_keys=True
            ),
            opts=self._child,
        )
        self.dashboard_url = _console_url(args.region, dashboard)
        self.register_outputs({"alertsTopicArn": self.alerts_topic_arn, "dashboardUrl": self.dashboard_url})

    def _topic(self) -> pulumi.Output[str]:
        """A topic that only this account's alarms, and what the account allows by IAM, publish to.

        It is not encrypted by the account's default key: that key's policy shuts CloudWatch out, and alarms would
        be dropped without a word. Messages hold names and counts only.
        """
        args = self._args
        topic_name = f"{args.base_name}-alerts"
        topic = aws.sns.Topic(
            f"{self._name}-alerts", name=topic_name, tags={"Name": topic_name}, opts=self._child
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

    def _alarm(self, group: str, alarm: Alarm) -> None:
        dimensions = {"AutoScalingGroupName": group}
        if alarm.event is not None:
            what = {
                "namespace": NAMESPACE,
                "metric_name": alarm.event,
                "dimensions": dimensions,
                "statistic": "Sum",
                "period": alarm.period_seconds,
                "threshold": 1,
                "comparison_operator": "GreaterThanOrEqualToThreshold",
            }
        else:
            metrics = [
                {
                    "id": key,
                    "metric": {
                        "namespace": "AWS/AutoScaling",
                        "metric_name": metric,
                        "dimensions": dimensions,
                        "stat": "Average",
                        "period": alarm.period_seconds,
                    },
                    "return_data": False,
                }
                for key, metric in alarm.metrics.items()
            ]
            wanted = {
                "id": "shortfall",
                "expression": alarm.expression,
                "label": "nodes short",
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
            alarm_actions=[self.alerts_topic_arn],
            ok_actions=[self.alerts_topic_arn],
            tags={"Name": f"{group}-{alarm.role}"},
            opts=self._child,
            **what,
        )


def _console_url(region: str, dashboard: str) -> str:
    domain = {"aws-cn": "console.amazonaws.cn", "aws-us-gov": "console.amazonaws-us-gov.com"}.get(
        partition(region), "console.aws.amazon.com"
    )
    return f"https://{region}.{domain}/cloudwatch/home?region={region}#dashboards/dashboard/{dashboard}"
