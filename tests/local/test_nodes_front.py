"""The gateway between process nodes and the AWS emulation, and which driver is taken."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localcloud.aws.server import ACCOUNT_ID, AwsServer
from localcloud.daemons import MARKER, find_leavings
from localcloud.gateway import control
from localcloud.gateway.control import Rule
from localcloud.nodes import machine
from localcloud.nodes.__main__ import choose_driver
from localcloud.nodes.front import Front, FrontFailed
from localcloud.nodes.site import Site
from localcloud.toolchain import paths
from tests.local.cloud_kit import REGION, Cluster, client, hooks, wait_until
from tests.local.node_kit import user_data

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def aws() -> Any:
    with AwsServer(tick_seconds=0.1) as server:
        yield server


@pytest.fixture
def site(aws: AwsServer, tmp_path: Path) -> Site:
    return Site(
        local=tmp_path / ".local", image_dir=tmp_path, metadata_mock=paths().metadata_mock,
        endpoint=aws.endpoint, region=REGION, account_id=ACCOUNT_ID,
    )  # fmt: skip


def test_it_answers_for_the_emulation_until_it_is_closed(site: Site) -> None:
    front = Front(site)
    try:
        endpoint = front.wait()
        assert endpoint != site.endpoint
        assert client("sts", endpoint).get_caller_identity()["Account"] == ACCOUNT_ID
    finally:
        front.close()
    assert find_leavings(site.local) == []


def test_one_that_does_not_come_up_says_where_its_log_is(site: Site) -> None:
    with pytest.raises(FrontFailed, match=r"gateway\.log"):
        Front(replace(site, endpoint="ftp://nowhere")).wait()
    assert "upstream is 'ftp://nowhere'" in (site.local / "log" / "gateway.log").read_text()


def test_a_process_node_is_told_the_gateway_and_answers_its_hook_through_it(
    aws: AwsServer, tmp_path: Path
) -> None:
    local = tmp_path / ".local"
    cluster = Cluster(aws.endpoint, user_data("group", "serve"))
    cluster.group("group", 1, LifecycleHookSpecificationList=hooks(120, 120))
    command = [sys.executable, "-m", "localcloud.nodes", "--endpoint", aws.endpoint, "--state", str(local)]
    command += ["--image-dir", str(tmp_path), "--driver", "process"]
    search = f"{REPOSITORY}{os.pathsep}{REPOSITORY / 'trainer' / 'src'}"
    driver = subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE,
        env={**os.environ, MARKER: str(local), "PYTHONPATH": search},
    )  # fmt: skip
    try:
        assert driver.stdout is not None
        ready = json.loads(driver.stdout.readline())
        assert (ready["driver"], ready["why"]) == ("process", "as asked for")
        wait_until(lambda: list(cluster.states("group").values()) == ["InService"], "a node in service")
        (instance_id,) = cluster.states("group")
        node = local / "nodes" / instance_id
        assert json.loads((node / "node.json").read_text())["driver"] == "process"
        told = dict(
            line.split("=", 1)
            for line in (node / "root" / "environment").read_text().splitlines()
            if "=" in line
        )
        assert told["AWS_ENDPOINT_URL"] != aws.endpoint
        control.set_rules(local / "gateway", [Rule(kind="outage", times=None)])
        with pytest.raises(Exception, match=r"(?i)connection|endpoint"):
            client("s3", told["AWS_ENDPOINT_URL"]).list_buckets()
    finally:
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(timeout=30) == 0
        assert driver.stdout is not None
        driver.stdout.close()
    assert find_leavings(local) == []


@pytest.mark.parametrize(
    ("wanted", "missing", "driver", "why"),
    [
        ("process", ["root"], "process", "as asked for"),
        ("process", [], "process", "as asked for"),
        ("machine", [], "machine", "as asked for"),
        ("auto", [], "machine", "root on Linux with systemd-nspawn"),
        ("auto", ["systemd-nspawn", "nft"], "process", "machine nodes need systemd-nspawn, nft"),
        ("machine", ["root"], None, "machine nodes need root"),
    ],
)
def test_which_driver_is_taken(
    monkeypatch: pytest.MonkeyPatch, wanted: str, missing: list[str], driver: str | None, why: str
) -> None:
    monkeypatch.setattr(machine, "missing_tools", lambda: missing)
    assert choose_driver(wanted) == (driver, why)
