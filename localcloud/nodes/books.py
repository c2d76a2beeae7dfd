"""What every kind of local node keeps of itself: its folder, its state, and `node.json` for those who look."""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from datetime import datetime, timezone
from typing import Any

from ..processes import Identity
from .cloud import InstanceFacts
from .console import Console
from .driver import Node, Phase, exit_name
from .metadata import Facts, MetadataService, Show
from .site import Site

ENDS = (Show.SPOT, Show.TERMINATING)  # other notices leave it to the group to take the node out later


class NodeBooks(ABC):
    """Base of `NodeProcess` and `NodeMachine`: the books are the same, what they are kept of is not."""

    driver = ""
    metadata: MetadataService

    def __init__(self, site: Site, instance_id: str, address: str):
        self.site = site
        self.instance_id = instance_id
        self.address = address  # loopback, by which the host reaches its metrics
        self.folder = site.nodes / instance_id
        self.root = self.folder / "root"  # what the node wrote, by the paths it knows
        self.console = Console(self.folder / "console.log")
        self.phase = Phase.BOOTING
        self.exit_code: int | None = None
        self.reboots = 0  # all of them
        self.agent_reboots = 0
        self.reboots_obeyed = 0
        self.settled = False
        self.announced = False
        self.interrupt_at: float | None = None
        self.notice: dict[str, Any] | None = None
        self.facts: InstanceFacts | None = None
        self.record: dict[str, Any] = {}

    def view(self) -> Node:
        return Node(
            self.instance_id,
            self.phase,
            self.exit_code,
            self.agent_reboots,
            self.interrupt_at,
            self.announced,
            self.settled,
            self.reboots_obeyed,
        )

    def configure_metadata(self, facts: InstanceFacts, address: str) -> None:
        """Who the node is, as its metadata service tells it; `address`: what local-ipv4 says."""
        self.metadata.configure(
            Facts(
                instance_id=self.instance_id,
                instance_type=facts.instance_type,
                availability_zone=facts.availability_zone,
                region=self.site.region,
                address=address,
                life_cycle=facts.life_cycle,
                image_id=facts.image_id,
                account_id=self.site.account_id,
                role=facts.role,
            )
        )

    def first_record(self, facts: InstanceFacts, user_data: bytes) -> dict[str, Any]:
        return {
            "instanceId": self.instance_id,
            "driver": self.driver,
            "group": facts.instance.group,
            "lifecycle": facts.life_cycle,
            "instanceType": facts.instance_type,
            "availabilityZone": facts.availability_zone,
            "privateIp": facts.private_ip,
            "address": self.address,
            "launchTemplate": {"id": facts.template_id, "version": facts.template_version},
            "userDataSha256": hashlib.sha256(user_data).hexdigest(),
            "bootedAt": time.time(),
        }

    def show(self, show: Show, terminates_at: datetime | None = None, code: str | None = None) -> None:
        """`code`: of a scheduled event. Raises MetadataFailed."""
        self.show_metadata(show, terminates_at, code)
        self.announced = show in ENDS
        if show is not Show.QUIET:
            self.notice = {"kind": show.value, "at": time.time()}
            if terminates_at is not None:
                self.notice["terminatesAt"] = terminates_at.timestamp()
        self.write()

    @abstractmethod
    def show_metadata(
        self, show: Show, terminates_at: datetime | None = None, code: str | None = None
    ) -> None:
        """Restart the metadata service so that it shows this. Raises MetadataFailed."""

    def processes(self) -> dict[str, Any]:
        """Which processes make the node up, for the record."""
        return {}

    def write(self) -> None:
        """`node.json`, in one step, so that a reader never sees half of it."""
        self.record |= {
            "state": self.phase.value,
            "exitCode": self.exit_code,
            "exitName": None if self.exit_code is None else exit_name(self.exit_code),
            **self.processes(),
            "reboots": self.reboots,
            "notice": self.notice,
            "steps": self.console.steps,
            "bootSeconds": self.console.boot_seconds,
            "bootFailure": self.console.failure,
            "updatedAt": datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        }
        path = self.folder / "node.json"
        part = path.with_suffix(".part")
        part.write_text(json.dumps(self.record, indent=2) + "\n")
        part.replace(path)


def as_record(identity: Identity | None) -> dict[str, int] | None:
    return None if identity is None else {"pid": identity.pid, "started": identity.started}
