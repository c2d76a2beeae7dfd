"""Monitoring of a whole stack: CloudWatch always, Prometheus and Grafana where there is a cluster for them."""

from collections.abc import Iterable
from dataclasses import dataclass

import pulumi

from components.names import stack_names
from components.settings import Settings

from .cloudwatch import AlarmActions, CloudWatch, CloudWatchArgs, WatchedGroup
from .cluster import ClusterMonitoring, ClusterMonitoringArgs

__all__ = ["AlarmActions", "Monitoring", "MonitoringArgs", "WatchedGroup"]


@dataclass(frozen=True)
class MonitoringArgs:
    """What is watched and who is told."""

    base_name: str
    """Prefix and stack, for example gputrain-prod; all names begin with it."""

    account_id: str
    """The twelve digits of the account."""

    region: str
    """The region of the stack."""

    auto_scaling_groups: list[str]
    """The Auto Scaling groups, by plain name: they need not exist yet."""

    metrics_port: int
    """TCP port of the nodes' exporters."""

    retention_days: int
    """Days that logs and series are kept."""

    alert_emails: list[str]
    """Addresses that are told of every alarm, once they confirmed. Empty: the topic alone."""

    key_arn: pulumi.Input[str] | None = None
    """Key of log group and topic, whose policy lets CloudWatch in. None: no key of the stack's own."""

    sns_topic_arn: str | None = None
    """A topic that exists already. None: the stack makes its own."""

    kubeconfig: pulumi.Input[str] | None = None
    """How to reach a Kubernetes cluster that exists already. None: no Prometheus, CloudWatch alone."""


def monitoring_args(settings: Settings, key_arn: pulumi.Input[str] | None) -> MonitoringArgs:
    """The monitoring of a stack with these settings; ``key_arn`` is the stack's own key, if it has one."""
    names, watched = stack_names(settings), settings.monitoring
    return MonitoringArgs(
        base_name=names.base_name,
        account_id=names.account_id,
        region=names.region,
        auto_scaling_groups=[names.auto_scaling_group(group.name) for group in settings.gpu_groups],
        metrics_port=watched.metrics_port,
        retention_days=watched.retention_days,
        alert_emails=watched.alerts.emails,
        key_arn=key_arn,
        sns_topic_arn=watched.alerts.sns_topic_arn,
        kubeconfig=pulumi.Output.secret(watched.kubeconfig) if watched.kubeconfig else None,
    )


class Monitoring(pulumi.ComponentResource):
    """Logs, alarms, topic and dashboards of a stack."""

    alerts_topic_arn: pulumi.Output[str]
    dashboard_url: str
    log_group_name: str
    ready: list[pulumi.Resource]  # what must exist before a node boots

    def __init__(self, name: str, args: MonitoringArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("gputraining:monitoring:Monitoring", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self._cloudwatch = cloudwatch = CloudWatch(
            f"{name}-cloudwatch",
            CloudWatchArgs(
                base_name=args.base_name,
                account_id=args.account_id,
                region=args.region,
                auto_scaling_groups=args.auto_scaling_groups,
                retention_days=args.retention_days,
                alert_emails=args.alert_emails,
                key_arn=args.key_arn,
                sns_topic_arn=args.sns_topic_arn,
            ),
            opts=child,
        )
        self.alerts_topic_arn = cloudwatch.alerts_topic_arn
        self.dashboard_url = cloudwatch.dashboard_url
        self.log_group_name = cloudwatch.log_group_name
        self.ready = cloudwatch.ready
        if args.kubeconfig is not None:
            ClusterMonitoring(
                f"{name}-cluster",
                ClusterMonitoringArgs(
                    base_name=args.base_name,
                    region=args.region,
                    kubeconfig=args.kubeconfig,
                    auto_scaling_groups=args.auto_scaling_groups,
                    metrics_port=args.metrics_port,
                    retention_days=args.retention_days,
                    alerts_topic_arn=self.alerts_topic_arn,
                ),
                opts=child,
            )
        self.register_outputs(
            {
                "alertsTopicArn": self.alerts_topic_arn,
                "dashboardUrl": self.dashboard_url,
                "logGroupName": self.log_group_name,
            }
        )

    def watch(self, groups: Iterable[WatchedGroup]) -> None:
        """Declare the alarms of groups that are declared already, since alarms may call their policies."""
        self._cloudwatch.watch(groups)
