"""One node as a tree of processes: boot, watch, reboot, stop. Everything it writes lies in its own folder."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..daemons import MARKER
from ..processes import Identity, end, identify, marked
from .cloud import InstanceFacts
from .console import Console
from .driver import Node, Phase, exit_name
from .metadata import Facts, MetadataService, Show

NODE_MARKER = (
    "GPU_TRAINING_NODE"  # environment variable of everything that belongs to a node: its instance id
)
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHUTDOWN_SECONDS = 15.0  # from SIGTERM to SIGKILL, as a machine that shuts down
START_HOOK = Path(__file__).with_name("start_agent.sh")
INIT = Path(__file__).with_name("init.py")


@dataclass(frozen=True)
class Site:
    """What all nodes of a driver have in common."""

    local: Path  # .local, absolute
    image_dir: Path  # stands for the machine image's /opt/pytorch
    metadata_mock: Path
    endpoint: str  # of the AWS API
    region: str
    account_id: str
    extra_environment: dict[str, str] = field(default_factory=dict)

    @property
    def nodes(self) -> Path:
        return self.local / "nodes"


def environment(site: Site, instance_id: str, root: Path, metadata_endpoint: str) -> dict[str, str]:
    """A node's whole environment: nothing of the caller's, no credentials (they come from the metadata)."""
    return {
        "PATH": SYSTEM_PATH,
        "HOME": str(root / "root"),
        "TMPDIR": str(root / "tmp"),
        "LANG": "C.UTF-8",
        "TRAINER_ROOT": str(root),
        "TRAINER_START_HOOK": str(START_HOOK),
        "AWS_ENDPOINT_URL": site.endpoint,
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": metadata_endpoint,
        **_bytecode(site),
        MARKER: str(site.local),
        NODE_MARKER: instance_id,
        **site.extra_environment,
    }


def _bytecode(site: Site) -> dict[str, str]:
    """The image is shared and not the nodes' to write. One that holds no compiled modules gets a place for them
    beside the nodes: without it every start of torch or of the AWS client would compile its modules anew."""
    compiled = site.image_dir / "lib" / "python3" / "site-packages" / "torch" / "__pycache__"
    if compiled.is_dir():
        return {"PYTHONDONTWRITEBYTECODE": "1"}
    return {"PYTHONPYCACHEPREFIX": str(site.local / "pycache")}


class NodeProcess:
    def __init__(self, site: Site, instance_id: str, address: str):
        self.site = site
        self.instance_id = instance_id
        self.address = address
        self.folder = site.nodes / instance_id
        self.root = self.folder / "root"
        self.metadata = MetadataService(site.metadata_mock, self.folder / "imds", address)
        self.console = Console(self.folder / "console.log")
        self.phase = Phase.BOOTING
        self.exit_code: int | None = None
        self.reboots = 0
        self.settled = False
        self.announced = False
        self.interrupt_at: float | None = None
        self.notice: dict[str, Any] | None = None
        self.facts: InstanceFacts | None = None
        self.record: dict[str, Any] = {}
        self._init: subprocess.Popen[bytes] | None = None
        self._kill_at = float("inf")

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.site, self.instance_id, self.root, self.metadata.endpoint)

    def view(self) -> Node:
        return Node(
            self.instance_id,
            self.phase,
            self.exit_code,
            self.reboots,
            self.interrupt_at,
            self.announced,
            self.settled,
        )

    def boot(self, facts: InstanceFacts, user_data: bytes) -> None:
        """Lay out the node's folder, start its metadata service, run its user data."""
        self.facts = facts
        for part in ("root", "tmp", "etc", "opt", "var/lib"):
            (self.root / part).mkdir(parents=True, exist_ok=True)
        image = self.root / "opt" / "pytorch"
        if not image.is_symlink():
            image.symlink_to(self.site.image_dir)
        script = self.folder / "user-data"
        script.write_bytes(user_data)
        self.metadata.configure(
            Facts(
                instance_id=self.instance_id,
                instance_type=facts.instance_type,
                availability_zone=facts.availability_zone,
                region=self.site.region,
                address=self.address,
                life_cycle=facts.life_cycle,
                image_id=facts.image_id,
                account_id=self.site.account_id,
                role=facts.role,
            )
        )
        self.metadata.show(Show.QUIET, self.environment)
        self.record = {
            "instanceId": self.instance_id,
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
        self._start(["bash", str(script)])

    def reboot(self) -> None:
        """User data runs once in an instance's life; a reboot starts the agent's unit again."""
        self.reboots += 1
        self.settled = False
        self._start([str(START_HOOK)])

    def _start(self, command: list[str]) -> None:
        self.console.restart()
        with (self.folder / "init.log").open("ab") as faults:
            self._init = subprocess.Popen(
                [sys.executable, "-I", str(INIT), str(self.console.path), str(SHUTDOWN_SECONDS), *command],
                cwd=self.root,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=faults,
                start_new_session=True,
            )
        self.phase, self.exit_code = Phase.BOOTING, None
        self.write()

    def watch(self, now: float) -> None:
        """Look at the console and at the processes; sets the phase."""
        news = self.console.read()
        if self.phase is Phase.BOOTING and self.console.agent_started:
            self.phase = Phase.RUNNING
        if self._init is not None and (code := self._init.poll()) is not None:
            self._init = None
            self._sweep()
            killed = code < 0 or code > 128
            if self.phase is Phase.STOPPING:
                self.phase = Phase.GONE
                self.metadata.stop()
            else:
                self.phase = Phase.KILLED if killed else Phase.EXITED
            self.exit_code = code if code >= 0 else 128 - code
            news = True
        elif self._init is not None and now >= self._kill_at:
            self._init.kill()  # the next look sweeps up its orphans
        if news:
            self.write()

    def stop(self, now: float) -> None:
        """Shut down: SIGTERM now, SIGKILL after the grace, without waiting here."""
        self.phase = Phase.STOPPING
        self._kill_at = now + SHUTDOWN_SECONDS + 5
        if self._init is not None:
            self._init.send_signal(signal.SIGTERM)
        else:
            self.clear()
        self.write()

    def clear(self) -> None:
        """The instance is gone: end whatever is left."""
        self._sweep()
        self.metadata.stop()
        self.phase = Phase.GONE
        self.write()

    def show(self, show: Show, terminates_at: datetime | None = None) -> None:
        self.metadata.show(show, self.environment, terminates_at)
        if show is not Show.QUIET:
            self.announced = True
            self.notice = {"kind": show.value, "at": time.time()}
            if terminates_at is not None:
                self.notice["terminatesAt"] = terminates_at.timestamp()
        self.write()

    def _sweep(self) -> None:
        """Kill what carries this node's mark: orphans of an init that was itself killed."""
        own = self.metadata.identity
        end([process for process in marked(NODE_MARKER, self.instance_id) if process != own], grace_seconds=0)

    def write(self) -> None:
        """`node.json`, in one step, so that a reader never sees half of it."""
        init = identify(self._init.pid) if self._init is not None else None
        self.record |= {
            "state": self.phase.value,
            "exitCode": self.exit_code,
            "exitName": None if self.exit_code is None else exit_name(self.exit_code),
            "init": _identity(init),
            "metadata": {"endpoint": self.metadata.endpoint, "process": _identity(self.metadata.identity)},
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


def _identity(identity: Identity | None) -> dict[str, int] | None:
    return None if identity is None else {"pid": identity.pid, "started": identity.started}
