"""Prometheus, Alertmanager and Grafana in a Kubernetes cluster that exists already."""

from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as kubernetes

from .chart_values import CHART, CHART_REPOSITORY, CHART_VERSION, chart_values

INSTALL_TIMEOUT_SECONDS = 900


@dataclass(frozen=True)
class ClusterMonitoringArgs:
    """Where the cluster is and what its Prometheus scrapes."""

    base_name: str
    """Prefix and stack; name of the namespace and of the release."""

    region: str
    """The region of the nodes and of the topic."""

    kubeconfig: pulumi.Input[str]
    """A kubeconfig as YAML or JSON text; kept as a secret whatever the caller made of it."""

    auto_scaling_groups: list[str]
    """Names of the groups whose instances are scraped."""

    metrics_port: int
    """The port of the nodes' exporters. The cluster's pods must reach it by the VPC's private addresses."""

    retention_days: int
    """Days that Prometheus keeps its series."""

    alerts_topic_arn: pulumi.Input[str]
    """The SNS topic that Alertmanager publishes to. Its pods need sns:Publish, with a key of the stack's own also
    kms:Decrypt and kms:GenerateDataKey on it; Prometheus' pods need ec2:DescribeInstances. All by the cluster's own way
    of giving roles to pods."""


class ClusterMonitoring(pulumi.ComponentResource):
    """A namespace and the kube-prometheus-stack release with our rules, scrape settings and dashboard."""

    release_name: str

    def __init__(
        self, name: str, args: ClusterMonitoringArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("gputraining:monitoring:ClusterMonitoring", name, None, opts)
        self.release_name = f"{args.base_name}-monitoring"
        # Its own identifier: a kubeconfig whose token was renewed must not replace what runs in the cluster.
        provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=pulumi.Output.secret(args.kubeconfig),
            cluster_identifier=args.base_name,
            opts=pulumi.ResourceOptions(parent=self),
        )
        in_cluster = pulumi.ResourceOptions(parent=self, provider=provider)
        namespace = kubernetes.core.v1.Namespace(
            f"{name}-namespace",
            metadata={
                "name": self.release_name,
                # The node exporter of the chart uses the host's network and file systems.
                "labels": {"pod-security.kubernetes.io/enforce": "privileged"},
            },
            opts=in_cluster,
        )
        kubernetes.helm.v3.Release(
            f"{name}-prometheus",
            name=self.release_name,
            chart=CHART,
            version=CHART_VERSION,
            repository_opts={"repo": CHART_REPOSITORY},
            namespace=self.release_name,
            atomic=True,
            timeout=INSTALL_TIMEOUT_SECONDS,
            values=chart_values(
                stack=args.base_name,
                region=args.region,
                auto_scaling_groups=args.auto_scaling_groups,
                metrics_port=args.metrics_port,
                retention_days=args.retention_days,
                alerts_topic_arn=args.alerts_topic_arn,
            ),
            opts=pulumi.ResourceOptions.merge(in_cluster, pulumi.ResourceOptions(depends_on=[namespace])),
        )
        self.register_outputs({"releaseName": self.release_name})
