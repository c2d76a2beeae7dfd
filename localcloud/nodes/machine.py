"""One node as a machine: systemd-nspawn boots the image, cloud-init runs the unmodified user data.

The overlay's upper layer is the node's `root` folder: what the node wrote lies there, as a process node's files do,
and can be read from outside. A reboot and a stop keep it; cloud-init runs user data once per instance id.
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Any

from ..processes import end, identify
from ..toolchain import rootfs
from . import cgroups
from .books import NodeBooks, as_record
from .cloud import InstanceFacts
from .driver import Phase
from .metadata import MetadataService, Show, die_with_parent
from .names import private_name
from .namespaces import connection_inside
from .network import METADATA, CloudNetwork, Placement, resolver, run
from .site import SHUTDOWN_SECONDS, SYSTEM_PATH, Site

METADATA_PORT = 80
REBOOTED = 133  # nspawn's exit code when the machine asked to be booted again
CONSOLE_PREFIX = "["  # journald stamps what it forwards with seconds since the boot


def missing_tools() -> list[str]:
    """Why machine nodes cannot be had here; empty: they can."""
    return rootfs.missing()


def clean(line: bytes) -> str:
    """A console line without journald's stamp and the program's name and number before the text."""
    text = line.decode(errors="replace").rstrip("\r\n")
    if text.startswith(CONSOLE_PREFIX):
        text = text.partition("] ")[2] or text
    head, colon, rest = text.partition(": ")
    if colon and head.endswith("]") and "[" in head and " " not in head:
        return rest
    return text


class NamespacedMetadata(MetadataService):
    """The service at its real address, on the loopback of a node's own network namespace."""

    def __init__(self, binary: Path, folder: Path, namespace: str):
        prefix = ("ip", "netns", "exec", namespace)
        super().__init__(binary, folder, METADATA, METADATA_PORT, prefix)
        self.namespace = namespace

    def connect(self) -> None:
        connection_inside(self.namespace, self.address, self.port, 1.0).close()


class NodeMachine(NodeBooks):
    """The surface of `handle.NodeHandle`. Used inside the driver's own mount namespace only."""

    driver = "machine"

    def __init__(self, site: Site, network: CloudNetwork, instance_id: str, address: str, place: Placement):
        super().__init__(site, instance_id, address)
        self.network, self.place = network, place
        self.metadata = NamespacedMetadata(site.metadata_mock, self.folder / "imds", instance_id)
        self.mount = site.local / "nodes" / instance_id / "machine"
        self._machine: subprocess.Popen[bytes] | None = None
        self._kill_at = float("inf")
        self._off = Phase.KILLED  # what the end of the machine means

    # --- as EC2 does

    def boot(self, facts: InstanceFacts, user_data: bytes) -> None:
        self.facts = facts
        for folder in (self.root, self.folder / "work", self.mount, self.folder / "journal"):
            folder.mkdir(parents=True, exist_ok=True)
        self._write_seed(user_data)
        self._write_image_settings()
        self.configure_metadata(facts, self.place.address)
        self.record = self.first_record(facts, user_data)
        self.power_on()
        self.network.open_door(self.address, self.place, self.site.metrics_port)

    def power_on(self) -> None:
        """Boot from what is there: the first time, after a stop, after a reboot. User data ran or runs as it will."""
        self.settled = False
        self.network.attach(self.instance_id, self.place)
        self.show(Show.QUIET)
        self._mount()
        self.console.restart()
        self._kill_at, self._off = float("inf"), Phase.KILLED
        command = [
            "systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=read-only",
            f"--machine={self.instance_id}", f"--directory={self.mount}", f"--hostname={self._host()}",
            f"--network-namespace-path=/run/netns/{self.instance_id}",
            f"--bind-ro={rootfs.packages()}:/{rootfs.site_packages(Path())}",
            f"--bind={self.folder / 'journal'}:/var/log/journal",
            "--resolv-conf=off", "--timezone=off", "--kill-signal=SIGRTMIN+3",
        ]  # fmt: skip
        join_groups = cgroups.joiner(self.site.local, self.instance_id)

        def before() -> None:
            die_with_parent()
            join_groups()

        with (self.folder / "nspawn.log").open("ab") as faults:
            self._machine = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=faults, start_new_session=True,
                preexec_fn=before,
            )  # fmt: skip
        output = self._machine.stdout
        assert output is not None
        threading.Thread(target=self._keep_console, args=(output,), daemon=True).start()
        self.phase, self.exit_code = Phase.BOOTING, None
        self.write()

    def reboot(self) -> None:
        """RebootInstances: the machine is asked as by its power button and boots again."""
        self._off, self.phase = Phase.BOOTING, Phase.STOPPING
        self._kill_at = time.monotonic() + SHUTDOWN_SECONDS + 5
        self._signal_init(signal.SIGINT)  # systemd: ctrl-alt-del.target, which reboots
        self.write()

    def stop(self, now: float) -> None:
        """TerminateInstances: shut down, and at the latest after the grace lose power."""
        self._shut_down(now, Phase.GONE)

    def power_off(self, now: float) -> None:
        """StopInstances: the same, and what the node wrote is kept."""
        self._shut_down(now, Phase.STOPPED)

    def crash(self) -> None:
        """The power fails: nspawn's death alone would leave the machine running."""
        for process in cgroups.processes(self.site.local, self.instance_id):
            process.send(signal.SIGKILL)
        if self._machine is not None:
            self._machine.kill()

    def clear(self) -> None:
        self.crash()
        if self._machine is not None:
            self._machine.wait(timeout=10)
            self._machine = None
        self._let_go()
        self.phase = Phase.GONE
        self.write()

    def watch(self, now: float) -> None:
        news = self.console.read()
        if self.phase is Phase.BOOTING and self.console.agent_started:
            self.phase, news = Phase.RUNNING, True
        if self.console.agent_exit is not None:
            self.exit_code, self.console.agent_exit, news = self.console.agent_exit, None, True
        if self._machine is not None and (code := self._machine.poll()) is not None:
            self._machine = None
            news = True
            by_itself = code == REBOOTED and self.phase in (Phase.BOOTING, Phase.RUNNING)
            if by_itself or self._off is Phase.BOOTING:
                self.reboots += 1
                self._unmount()
                self.power_on()
            else:
                self._let_go()
                self.phase = self._off
        elif self._machine is not None and now >= self._kill_at:
            self.crash()
        if news:
            self.write()

    def show_metadata(
        self, show: Show, terminates_at: datetime | None = None, code: str | None = None
    ) -> None:
        self.metadata.show(show, {"PATH": SYSTEM_PATH}, terminates_at, code)

    def processes(self) -> dict[str, Any]:
        """nspawn and the machine's first process, and the metadata service."""
        init = _first_child(self._machine.pid) if self._machine is not None else None
        return {
            "init": as_record(identify(init) if init is not None else None),
            "metadata": {"endpoint": self.metadata.endpoint, "process": as_record(self.metadata.identity)},
        }

    # --- inside

    def _shut_down(self, now: float, then: Phase) -> None:
        self._off, self.phase = then, Phase.STOPPING
        self._kill_at = now + SHUTDOWN_SECONDS + 5
        if self._machine is not None:
            self._machine.terminate()  # nspawn passes it on as an orderly shut-down
        else:
            self._let_go()
            self.phase = then
        self.write()

    def _let_go(self) -> None:
        """What the node had of the host is given back; its files stay."""
        end(cgroups.processes(self.site.local, self.instance_id), grace_seconds=0)
        if self._off is not Phase.STOPPED:
            self.network.close_door(self.address)
        self.metadata.stop()
        self._unmount()
        self.network.detach(self.instance_id)
        cgroups.remove(self.site.local, self.instance_id)

    def _host(self) -> str:
        return private_name(self.place.address, self.site.region).partition(".")[0]

    def _write_seed(self, user_data: bytes) -> None:
        seed = self.root / "var" / "lib" / "cloud" / "seed" / "nocloud"
        seed.mkdir(parents=True, exist_ok=True)
        name = private_name(self.place.address, self.site.region)
        (seed / "meta-data").write_text(
            json.dumps({"instance-id": self.instance_id, "local-hostname": name, "hostname": name}) + "\n"
        )
        (seed / "user-data").write_bytes(user_data)
        (self.folder / "user-data").write_bytes(user_data)

    def _write_image_settings(self) -> None:
        """What makes the image one of the local cloud: where AWS is, set for every service; the resolver."""
        variables = {
            "AWS_ENDPOINT_URL": self.network.endpoint,
            "LANG": "C.UTF-8",
            "PYTHONDONTWRITEBYTECODE": "1",
            **self.site.extra_environment,
        }
        words = " ".join(f'"{name}={value}"' for name, value in variables.items())
        folder = self.root / "etc" / "systemd" / "system.conf.d"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "local-cloud.conf").write_text(f"[Manager]\nDefaultEnvironment={words}\n")
        domain = private_name(self.place.address, self.site.region).partition(".")[2]
        (self.root / "etc" / "resolv.conf").write_text(
            f"nameserver {resolver(self.place.vpc)}\nsearch {domain}\noptions timeout:1 attempts:2\n"
        )

    def _mount(self) -> None:
        layers = f"lowerdir={rootfs.entry().path},upperdir={self.root},workdir={self.folder / 'work'}"
        run("mount", "-t", "overlay", "overlay", "-o", layers, str(self.mount))

    def _unmount(self) -> None:
        if self.mount.is_mount():
            run("umount", "--lazy", str(self.mount))

    def _keep_console(self, output: IO[bytes]) -> None:
        with self.console.path.open("a") as log:
            for line in output:
                stamp = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
                if text := clean(line):
                    log.write(f"{stamp} {text}\n")
                    log.flush()

    def _signal_init(self, number: int) -> None:
        """To the machine's first process, which is nspawn's only child."""
        if self._machine is not None and (init := _first_child(self._machine.pid)) is not None:
            found = identify(init)
            if found is not None:
                found.send(number)


def _first_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None
