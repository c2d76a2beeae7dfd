"""The values of the kube-prometheus-stack chart: our scrape settings, alert rules, dashboard and receiver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .files import dashboard_text, rule_groups
from .scrape import scrape_config

CHART = "kube-prometheus-stack"
CHART_VERSION = "88.5.3"
CHART_REPOSITORY = "https://prometheus-community.github.io/helm-charts"
FOLDER = "gpu-training"  # of Grafana, and the name of its dashboard provider


def chart_values(
    *,
    stack: str,
    region: str,
    auto_scaling_groups: Sequence[str],
    metrics_port: int,
    retention_days: int,
    alerts_topic_arn: Any,
) -> dict[str, Any]:
    """Everything else is the chart's own default. `alerts_topic_arn` may be an output.

    No password is set: the chart then makes a random one and keeps it in a secret of the cluster.
    """
    unreachable = {"enabled": False}  # a managed control plane answers no scrape; its alerts would never end
    return {
        "additionalPrometheusRulesMap": {
            f"gpu-training-{name}": groups for name, groups in rule_groups().items()
        },
        "prometheus": {
            "prometheusSpec": {
                "retention": f"{retention_days}d",
                "externalLabels": {"stack": stack},
                "additionalScrapeConfigs": [
                    scrape_config(
                        region=region, auto_scaling_groups=auto_scaling_groups, metrics_port=metrics_port
                    )
                ],
            }
        },
        "alertmanager": {"config": _alertmanager(region, alerts_topic_arn)},
        "grafana": {
            "dashboardProviders": {"dashboardproviders.yaml": {"apiVersion": 1, "providers": [_provider()]}},
            "dashboards": {FOLDER: {"trainer": {"json": dashboard_text()}}},
        },
        "kubeControllerManager": unreachable,
        "kubeScheduler": unreachable,
        "kubeEtcd": unreachable,
    }


def _alertmanager(region: str, topic_arn: Any) -> dict[str, Any]:
    """Our alerts go to the topic; the cluster's own stay in its user interface."""
    return {
        "route": {
            "receiver": "null",
            "group_by": ["alertname", "auto_scaling_group"],
            "routes": [{"receiver": "sns", "matchers": ['service="gpu-training"', 'severity!="info"']}],
        },
        "receivers": [
            {"name": "null"},
            {"name": "sns", "sns_configs": [{"topic_arn": topic_arn, "sigv4": {"region": region}}]},
        ],
    }


def _provider() -> dict[str, Any]:
    return {
        "name": FOLDER,
        "folder": "GPU training",
        "type": "file",
        "disableDeletion": True,
        "editable": False,
        "options": {"path": f"/var/lib/grafana/dashboards/{FOLDER}"},
    }
