"""One node as a tree of processes: boot, watch, reboot, stop. Everything it writes lies in its own folder."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from ..daemons import MARKER
from ..processes import end, identify, marked
from .books import NodeBooks, as_record
from .cloud import InstanceFacts
from .driver import Phase
from .metadata import MetadataService, Show
from .site import SHUTDOWN_SECONDS, SYSTEM_PATH, Site

NODE_MARKER = (
    "GPU_TRAINING_NODE"  # environment variable of everything that belongs to a node: its instance id
)
START_HOOK = Path(__file__).with_name("start_agent.sh")
INIT = Path(__file__).with_name("init.py")


def environment(site: Site, instance_id: str, root: Path, metadata_endpoint: str) -> dict[str, str]:
    """A node's whole environment: nothing of the caller's, no credentials (they come from the metadata)."""
    return {
        "PATH": SYSTEM_PATH,
        "HOME": str(root / "root"),
        "TMPDIR": str(root / "tmp"),
        "LANG": "C.UTF-8",
        "TRAINER_ROOT": str(root),
        "TRAINER_START_HOOK": str(START_HOOK),
        "AWS_ENDPOINT_URL": site.node_endpoint or site.endpoint,
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


class NodeProcess(NodeBooks):
    driver = "process"

    def __init__(self, site: Site, instance_id: str, address: str):
        super().__init__(site, instance_id, address)
        self.metadata = MetadataService(site.metadata_mock, self.folder / "imds", address)
        self._init: subprocess.Popen[bytes] | None = None
        self._kill_at = float("inf")
        self._then = Phase.GONE  # what the end of a shut-down leads to

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.site, self.instance_id, self.root, self.metadata.endpoint)

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
        self.configure_metadata(facts, self.address)
        self.show_metadata(Show.QUIET)
        self.record = self.first_record(facts, user_data)
        self._start(["bash", str(script)])

    def reboot(self) -> None:
        """User data runs once in an instance's life; a reboot starts the agent's unit again."""
        self.reboots += 1
        if self._init is not None:  # shut down first
            self._shut_down(time.monotonic(), Phase.BOOTING)
        else:
            self.power_on()

    def power_on(self) -> None:
        self.settled = False
        self.show(Show.QUIET)
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
        self.phase, self.exit_code, self._kill_at = Phase.BOOTING, None, float("inf")
        self.write()

    def watch(self, now: float) -> None:
        """Look at the console and at the processes; sets the phase."""
        news = self.console.read()
        if self.phase is Phase.BOOTING and self.console.agent_started:
            self.phase, news = Phase.RUNNING, True
        if self._init is not None and (code := self._init.poll()) is not None:
            self._init = None
            self._sweep()
            killed = code < 0 or code > 128
            if self.phase is not Phase.STOPPING:
                self.phase = Phase.KILLED if killed else Phase.EXITED
            elif self._then is Phase.BOOTING:
                self.power_on()
                return
            else:
                self.phase = self._then
                self.metadata.stop()
            self.exit_code = code if code >= 0 else 128 - code
            news = True
        elif self._init is not None and now >= self._kill_at:
            self._init.kill()  # the next look sweeps up its orphans
        if news:
            self.write()

    def stop(self, now: float) -> None:
        self._shut_down(now, Phase.GONE)

    def power_off(self, now: float) -> None:
        self._shut_down(now, Phase.STOPPED)

    def _shut_down(self, now: float, then: Phase) -> None:
        """SIGTERM now, SIGKILL after the grace, without waiting here."""
        self.phase, self._then = Phase.STOPPING, then
        self._kill_at = now + SHUTDOWN_SECONDS + 5
        if self._init is not None:
            self._init.send_signal(signal.SIGTERM)
        else:
            self._sweep()
            self.metadata.stop()
            self.phase = then
        self.write()

    def crash(self) -> None:
        if self._init is not None:
            self._init.kill()  # the next look sweeps up its orphans

    def clear(self) -> None:
        """The instance is gone: end whatever is left."""
        self._sweep()
        self.metadata.stop()
        self.phase = Phase.GONE
        self.write()

    def show_metadata(
        self, show: Show, terminates_at: datetime | None = None, code: str | None = None
    ) -> None:
        self.metadata.show(show, self.environment, terminates_at, code)

    def _sweep(self) -> None:
        """Kill what carries this node's mark: orphans of an init that was itself killed."""
        own = self.metadata.identity
        end([process for process in marked(NODE_MARKER, self.instance_id) if process != own], grace_seconds=0)

    def processes(self) -> dict[str, Any]:
        init = identify(self._init.pid) if self._init is not None else None
        return {
            "init": as_record(init),
            "metadata": {"endpoint": self.metadata.endpoint, "process": as_record(self.metadata.identity)},
        }
