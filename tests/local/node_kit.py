"""A local cloud with one driver inside a test's process, stepped by whoever waits."""

from __future__ import annotations

import contextlib
import json
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcloud.aws.server import ACCOUNT_ID, AwsServer
from localcloud.daemons import find_leavings
from localcloud.nodes.cloud import Cloud
from localcloud.nodes.service import Service
from localcloud.nodes.site import Site
from localcloud.processes import identify
from localcloud.toolchain import paths
from tests.local.cloud_kit import REGION, Cluster, hooks

NOTICE_SECONDS = 1.5
STUB = Path(__file__).with_name("stub_agent.py")


def user_data(group: str, behaviour: str) -> str:
    """Bootstraps the stub where the trainer's release would be."""
    return f"""#!/bin/bash
set -eu
echo "bootstrap: install the stub"
mkdir -p "$TRAINER_ROOT/opt/trainer/current/bin"
printf '%s\\n' '#!/bin/bash' 'export GROUP={group}' 'exec {sys.executable} {STUB} {behaviour} "$@"' \
  >"$TRAINER_ROOT/opt/trainer/current/bin/trainer"
chmod +x "$TRAINER_ROOT/opt/trainer/current/bin/trainer"
env >"$TRAINER_ROOT/environment"
exec $TRAINER_START_HOOK
"""


class World:
    """A cloud, its clusters and one driver, stepped by whoever waits."""

    def __init__(self, aws: AwsServer, local: Path, image: Path):
        self.aws, self.local = aws, local
        self.site = Site(
            local=local, image_dir=image, metadata_mock=paths().metadata_mock, endpoint=aws.endpoint,
            region=REGION, account_id=ACCOUNT_ID, extra_environment={"TRAINER_RESTART_SECONDS": "0"},
        )  # fmt: skip
        self.service = Service(self.site, Cloud(aws.endpoint, REGION), NOTICE_SECONDS)
        self.clusters: dict[str, Cluster] = {}

    def group(
        self,
        name: str,
        user_data: str,
        desired: int = 1,
        mixed: tuple[int, int] | None = None,
        launching_seconds: int = 120,
        minimum: int = 0,
    ) -> str:
        """`mixed`: on-demand base and percentage above it; `minimum`: the group's size at least."""
        cluster = self.clusters[name] = Cluster(self.aws.endpoint, user_data)
        purchase = cluster.mixed(*mixed) if mixed else {}
        gates = {"LifecycleHookSpecificationList": hooks(launching_seconds, 120)}
        cluster.group(name, desired, MinSize=minimum, **gates, **purchase)
        return name

    def states(self, group: str) -> dict[str, str]:
        return self.clusters[group].states(group)

    def until(self, holds: Callable[[], bool], what: str, limit_seconds: float = 30.0) -> None:
        deadline = time.monotonic() + limit_seconds
        while True:
            self.service.step(time.monotonic())
            if holds():
                return
            assert time.monotonic() < deadline, f"waited {limit_seconds:.0f} s for {what}: {self.consoles()}"
            time.sleep(0.05)

    def in_service(self, group: str, count: int = 1) -> list[str]:
        self.until(
            lambda: list(self.states(group).values()) == ["InService"] * count,
            f"{count} in service in {group}",
        )
        return list(self.states(group))

    def record(self, instance_id: str) -> dict[str, Any]:
        return json.loads((self.site.nodes / instance_id / "node.json").read_text())

    def console(self, instance_id: str) -> str:
        return (self.site.nodes / instance_id / "console.log").read_text()

    def consoles(self) -> str:
        return "\n".join(path.read_text()[-500:] for path in self.site.nodes.glob("*/console.log"))

    def worker(self, instance_id: str) -> int:
        state = self.site.nodes / instance_id / "root" / "var" / "lib" / "trainer"
        return int((state / "worker.pid").read_text())


def alive(pid: int) -> bool:
    found = identify(pid)
    return found is not None and found.alive()


def metadata(endpoint: str, path: str) -> str | None:
    """None for 404."""
    asked = urllib.request.Request(f"{endpoint}/latest/api/token", method="PUT")
    asked.add_header("X-aws-ec2-metadata-token-ttl-seconds", "60")
    token = urllib.request.urlopen(asked, timeout=5).read().decode()
    asked = urllib.request.Request(f"{endpoint}/latest/meta-data/{path}")
    asked.add_header("X-aws-ec2-metadata-token", token)
    try:
        return urllib.request.urlopen(asked, timeout=5).read().decode()
    except urllib.error.HTTPError as fault:
        if fault.code == 404:
            return None
        raise


def stub_group(world: World, name: str, behaviour: str, **options: Any) -> str:
    return world.group(name, user_data(name, behaviour), **options)


@contextlib.contextmanager
def stub_world(folders: pytest.TempPathFactory) -> Iterator[World]:
    """Ends with a look for what the driver left."""
    local = folders.mktemp("nodes") / ".local"
    image = folders.mktemp("image")
    with AwsServer(tick_seconds=0.1) as aws:
        found = World(aws, local, image)
        try:
            yield found
        finally:
            found.service.shut_down()
            assert find_leavings(local) == [], "nothing runs after the driver's end"
