"""How Prometheus finds the nodes: it asks EC2 for the instances of the Auto Scaling groups.

Auto Scaling itself tags each instance with its group, so that no node can be missed for want of a tag of ours.
Prometheus needs `ec2:DescribeInstances` by a role of its own; a file of credentials is cached and runs out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

JOB = "trainer"
GROUP_TAG = "aws:autoscaling:groupName"


def scrape_config(
    *,
    region: str,
    auto_scaling_groups: Sequence[str],
    metrics_port: int,
    endpoint: str | None = None,
    interval_seconds: int = 15,
) -> dict[str, Any]:
    """One entry of Prometheus' `scrape_configs`.

    `endpoint` is the EC2 API's address where it is not AWS's own. Every series carries the labels
    auto_scaling_group, instance_id, instance_type, zone, and `instance` as private address and port.
    """
    discovery: dict[str, Any] = {
        "region": region,
        "port": metrics_port,
        "refresh_interval": "30s",
        "filters": [
            {"name": f"tag:{GROUP_TAG}", "values": sorted(auto_scaling_groups)},
            {"name": "instance-state-name", "values": ["running"]},
        ],
    }
    if endpoint is not None:
        discovery["endpoint"] = endpoint
    return {
        "job_name": JOB,
        "scrape_interval": f"{interval_seconds}s",
        "scrape_timeout": f"{min(10, interval_seconds)}s",
        "ec2_sd_configs": [discovery],
        "relabel_configs": [
            _copy("tag_aws_autoscaling_groupName", "auto_scaling_group"),
            _copy("instance_id", "instance_id"),
            _copy("instance_type", "instance_type"),
            _copy("availability_zone", "zone"),
        ],
    }


def _copy(meta_label: str, label: str) -> dict[str, Any]:
    return {"source_labels": [f"__meta_ec2_{meta_label}"], "target_label": label}
