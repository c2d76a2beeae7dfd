"""A local cloud with one driver inside a test's process, stepped by whoever waits."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localcloud.aws.server import ACCOUNT_ID, AwsServer
from localcloud.nodes.cloud import Cloud
from localcloud.nodes.service import Service
from localcloud.nodes.site import Site
from localcloud.processes import identify
from localcloud.toolchain import paths
from tests.local.cloud_kit import REGION, Cluster, hooks

NOTICE_SECONDS = 1.5


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
    ) -> str:
        """`mixed`: on-demand base and percentage above it."""
        cluster = self.clusters[name] = Cluster(self.aws.endpoint, user_data)
        purchase = cluster.mixed(*mixed) if mixed else {}
        gates = {"LifecycleHookSpecificationList": hooks(launching_seconds, 120)}
        cluster.group(name, desired, **gates, **purchase)
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
