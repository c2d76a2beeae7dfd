"""Prometheus and Alertmanager beside the local cloud, with the stack's own alert rules and scrape settings.

Without a Prometheus on the machine the nodes' exporters are scraped here instead; both ways answer the same
question, `targets_up()`, and say by which of the two.
"""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from prometheus_client.parser import text_string_to_metric_families

from components.monitoring.files import rules_files
from components.monitoring.scrape import JOB, scrape_config

from . import daemons
from .nodes.cloud import ADDRESS_TAG

HOST = "127.0.0.1"
READY_LIMIT_SECONDS = 60.0
SCRAPE_SECONDS = 2
TIMEOUT_SECONDS = 3.0
DEFAULT_METRICS_PORT = 9400


@dataclass(frozen=True)
class Target:
    instance_id: str
    address: str  # the node's loopback address
    port: int


@dataclass(frozen=True)
class Scrape:
    """Which declared nodes' metrics were scraped, and by what."""

    up: dict[str, bool]  # instance id -> scraped
    by: str  # prometheus | self: without Prometheus, the exporters were read once


def prometheus_configuration(
    *,
    region: str,
    auto_scaling_groups: Sequence[str],
    metrics_port: int,
    ec2_endpoint: str,
    alertmanager: str | None,
) -> dict[str, Any]:
    """The cloud's scrape settings with what a single machine has otherwise: another EC2 endpoint, shorter
    intervals, and nodes on the loopback addresses that the node driver tags them with."""
    job = scrape_config(
        region=region,
        auto_scaling_groups=auto_scaling_groups,
        metrics_port=metrics_port,
        endpoint=ec2_endpoint,
        interval_seconds=SCRAPE_SECONDS,
    )
    discovery = job["ec2_sd_configs"][0]
    discovery |= {"refresh_interval": "2s", "access_key": "local", "secret_key": "local"}
    label = "".join(char if char.isalnum() else "_" for char in ADDRESS_TAG)
    # A node that has no such address yet is left out: its private one is nobody's outside of the local cloud.
    job["relabel_configs"].append(
        {"source_labels": [f"__meta_ec2_tag_{label}"], "regex": ".+", "action": "keep"}
    )
    job["relabel_configs"].append(
        {
            "source_labels": [f"__meta_ec2_tag_{label}"],
            "regex": "(.+)",
            "replacement": f"$1:{metrics_port}",
            "target_label": "__address__",
        }
    )
    configuration: dict[str, Any] = {
        "global": {"scrape_interval": f"{SCRAPE_SECONDS}s", "evaluation_interval": f"{SCRAPE_SECONDS}s"},
        "rule_files": [str(path) for path in rules_files()],
        "scrape_configs": [job],
    }
    if alertmanager is not None:
        configuration["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    return configuration


def start(
    local: Path,
    *,
    prometheus: Path | None,
    alertmanager: Path | None,
    region: str,
    auto_scaling_groups: Sequence[str],
    ec2_endpoint: str,
    metrics_port: int = DEFAULT_METRICS_PORT,
) -> str | None:
    """Start what the machine has; returns Prometheus' URL, None where there is no Prometheus.

    Raises daemons.DaemonFailed. A Prometheus that runs already is kept.
    """
    if prometheus is None:
        return None
    folder = local / "monitoring"
    (folder / "data").mkdir(parents=True, exist_ok=True)
    manager = _start_alertmanager(local, folder, alertmanager) if alertmanager is not None else None
    url = _url(local, "prometheus") if daemons.running(local, "prometheus") else None
    if url is None:
        url = f"http://{HOST}:{_free_port()}"
        configuration = prometheus_configuration(
            region=region,
            auto_scaling_groups=auto_scaling_groups,
            metrics_port=metrics_port,
            ec2_endpoint=ec2_endpoint,
            alertmanager=manager.removeprefix("http://") if manager else None,
        )
        (folder / "prometheus.yaml").write_text(yaml.safe_dump(configuration, sort_keys=False))
        (folder / "prometheus.url").write_text(url + "\n")
    command = [
        str(prometheus),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        "--storage.tsdb.retention.time=2d",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--log.level=warn",
    ]
    daemons.start(local, "prometheus", command, _answers(f"{url}/-/ready"), READY_LIMIT_SECONDS)
    return url


def _start_alertmanager(local: Path, folder: Path, binary: Path) -> str:
    """Alerts end in its own list: a laptop pages nobody."""
    url = _url(local, "alertmanager") if daemons.running(local, "alertmanager") else None
    if url is None:
        url = f"http://{HOST}:{_free_port()}"
        route = {"route": {"receiver": "list", "group_by": ["alertname"]}, "receivers": [{"name": "list"}]}
        (folder / "alertmanager.yaml").write_text(yaml.safe_dump(route))
        (folder / "alertmanager.url").write_text(url + "\n")
    command = [
        str(binary),
        f"--config.file={folder / 'alertmanager.yaml'}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={url.removeprefix('http://')}",
        "--cluster.listen-address=",
        "--log.level=warn",
    ]
    daemons.start(local, "alertmanager", command, _answers(f"{url}/-/ready"), READY_LIMIT_SECONDS)
    return url


def stop(local: Path) -> None:
    for name in ("prometheus", "alertmanager"):
        daemons.stop(local, name)


def targets(local: Path, instance_ids: Sequence[str]) -> list[Target]:
    """Where the node driver says that these nodes are; a node it does not know has no target."""
    found = []
    for instance_id in instance_ids:
        folder = local / "nodes" / instance_id
        try:
            address = json.loads((folder / "node.json").read_text())["address"]
        except (OSError, ValueError, KeyError):
            continue
        found.append(Target(instance_id, address, _metrics_port(folder)))
    return found


def _metrics_port(folder: Path) -> int:
    """From the node document on the node, once its bootstrap has fetched it."""
    try:
        document = json.loads((folder / "root" / "etc" / "trainer" / "node.json").read_text())
    except (OSError, ValueError):
        return DEFAULT_METRICS_PORT
    return int(document.get("metricsPort", DEFAULT_METRICS_PORT))


def targets_up(local: Path, instance_ids: Sequence[str], url: str | None) -> Scrape:
    """Were these nodes' metrics scraped? Asked of Prometheus at `url`, or, without one, found out here."""
    if url is not None:
        return Scrape(_up_by_prometheus(url, instance_ids), "prometheus")
    reached = {target.instance_id: _exports(target) for target in targets(local, instance_ids)}
    return Scrape({instance_id: reached.get(instance_id, False) for instance_id in instance_ids}, "self")


def _up_by_prometheus(url: str, instance_ids: Sequence[str]) -> dict[str, bool]:
    """A node counts when its target is up and Prometheus holds a sample that the trainer itself exported."""
    up = _instances_with(url, f'up{{job="{JOB}"}} == 1')
    exported = _instances_with(url, f'trainer_up{{job="{JOB}"}} == 1')
    return {instance_id: instance_id in up and instance_id in exported for instance_id in instance_ids}


def _instances_with(url: str, expression: str) -> set[str]:
    query = urllib.parse.urlencode({"query": expression})
    try:
        answer = json.loads(_get(f"{url}/api/v1/query?{query}"))
    except (OSError, ValueError):
        return set()
    return {result["metric"].get("instance_id", "") for result in answer["data"]["result"]}


def _exports(target: Target) -> bool:
    try:
        text = _get(f"http://{target.address}:{target.port}/metrics").decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
    except (OSError, ValueError):
        return False
    samples = families["trainer_up"].samples if "trainer_up" in families else []
    return any(sample.value == 1 for sample in samples)


def _get(url: str) -> bytes:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback: never through a proxy
    with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
        return answer.read()


def _answers(url: str) -> Callable[[], bool]:
    def answers() -> bool:
        try:
            _get(url)
        except (urllib.error.URLError, OSError):
            return False
        return True

    return answers


def _url(local: Path, name: str) -> str | None:
    path = local / "monitoring" / f"{name}.url"
    return path.read_text().strip() if path.exists() else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]
