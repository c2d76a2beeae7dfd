"""Monitoring of the local cloud: Prometheus with the stack's own rules and scrape settings, or a scrape of our own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from components.monitoring.files import rule_groups
from components.monitoring.scrape import scrape_config
from localcloud import daemons, monitoring
from localcloud.aws.server import AwsServer
from localcloud.nodes.cloud import Cloud
from localcloud.nodes.service import addresses
from localcloud.toolchain import paths
from tests.local.cloud_kit import REGION, Cluster, wait_until

METRICS = "# TYPE trainer_up gauge\ntrainer_up 1.0\n"


class Exporter(BaseHTTPRequestHandler):
    text = METRICS

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(self.text.encode())

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Mute(Exporter):
    text = "# TYPE something_else gauge\nsomething_else 1.0\n"


class Nodes:
    """Three instances in service: one exports, one exports something else, one does not answer."""

    def __init__(self, aws: AwsServer, local: Path):
        self.local, self.endpoint = local, aws.endpoint
        cluster = Cluster(aws.endpoint)
        cluster.group("group", 3, LifecycleHookSpecificationList=None)
        self.good, self.mute, self.dead = cluster.states("group")
        cloud = Cloud(aws.endpoint, REGION)
        self.servers = []
        for instance, handler in ((self.good, Exporter), (self.mute, Mute), (self.dead, None)):
            address = next(addresses(local / instance))
            cloud.tag_address(instance, address)
            folder = local / "nodes" / instance
            folder.mkdir(parents=True)
            (folder / "node.json").write_text(json.dumps({"address": address}))
            if handler is not None:
                server = ThreadingHTTPServer((address, monitoring.DEFAULT_METRICS_PORT), handler)
                threading.Thread(target=server.serve_forever, daemon=True).start()
                self.servers.append(server)

    @property
    def expected(self) -> dict[str, bool]:
        return {self.good: True, self.mute: False, self.dead: False}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    local = tmp_path_factory.mktemp("monitoring") / ".local"
    with AwsServer() as aws:
        found = Nodes(aws, local)
        yield found
        daemons.end_leavings(local)
        for server in found.servers:
            server.shutdown()
            server.server_close()


@pytest.mark.prometheus
def test_prometheus_finds_the_nodes_as_on_aws_and_loads_the_stacks_rules(nodes: Nodes) -> None:
    prometheus, alertmanager = paths().prometheus, paths().alertmanager
    assert prometheus is not None, "Debian's prometheus package: SETUP_SYSTEM=1 installs it"
    url = monitoring.start(
        nodes.local, prometheus=prometheus, alertmanager=alertmanager, region=REGION,
        auto_scaling_groups=["group"], ec2_endpoint=nodes.endpoint,
    )  # fmt: skip
    assert url is not None
    assert url.startswith("http://127.0.0.1:")
    ids = list(nodes.expected)
    wait_until(lambda: monitoring.targets_up(nodes.local, ids, url).up == nodes.expected, "the scrapes")
    assert monitoring.targets_up(nodes.local, [nodes.good], url).by == "prometheus"

    found = json.loads(monitoring._get(f"{url}/api/v1/rules"))["data"]["groups"]
    alerts = {rule["name"] for group in found for rule in group["rules"] if rule["type"] == "alerting"}
    declared = {
        rule["alert"]
        for file in rule_groups().values()
        for group in file["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert alerts == declared
    again = monitoring.start(
        nodes.local, prometheus=prometheus, alertmanager=alertmanager, region=REGION,
        auto_scaling_groups=["group"], ec2_endpoint=nodes.endpoint,
    )  # fmt: skip
    assert again == url, "a Prometheus that runs is kept"
    monitoring.stop(nodes.local)
    assert daemons.find_leavings(nodes.local) == []


def test_without_prometheus_the_exporters_are_read_here_and_it_says_so(nodes: Nodes) -> None:
    assert (
        monitoring.start(
            nodes.local, prometheus=None, alertmanager=None, region=REGION, auto_scaling_groups=["group"],
            ec2_endpoint=nodes.endpoint,
        )
        is None
    )  # fmt: skip
    found = monitoring.targets_up(nodes.local, list(nodes.expected), None)
    assert (found.up, found.by) == (nodes.expected, "self")


def test_a_node_the_driver_does_not_know_is_not_up(nodes: Nodes) -> None:
    assert monitoring.targets_up(nodes.local, ["i-unknown"], None).up == {"i-unknown": False}


def test_an_unreachable_prometheus_has_scraped_nothing(nodes: Nodes) -> None:
    found = monitoring.targets_up(nodes.local, [nodes.good], "http://127.0.0.1:9")
    assert found.up == {nodes.good: False}


def test_the_settings_are_the_clouds_but_for_endpoint_intervals_and_addresses() -> None:
    local = monitoring.prometheus_configuration(
        region=REGION, auto_scaling_groups=["b", "a"], metrics_port=9400, ec2_endpoint="http://e",
        alertmanager=None,
    )["scrape_configs"][0]  # fmt: skip
    cloud = scrape_config(region=REGION, auto_scaling_groups=["b", "a"], metrics_port=9400)
    assert local["job_name"] == cloud["job_name"]
    assert local["ec2_sd_configs"][0]["filters"] == cloud["ec2_sd_configs"][0]["filters"]
    *same, only_with_one, address = local["relabel_configs"]
    assert same == cloud["relabel_configs"]
    assert only_with_one["action"] == "keep", (
        "nobody asks a private address, which is another machine's on the host"
    )
    assert only_with_one["source_labels"] == address["source_labels"]
