"""The virtual private cloud of machine nodes: one network namespace with a bridge, one per node beside it.

Addresses are those that EC2 reported. Inside the cloud's namespace the bridge has each subnet's first address (the
router), the VPC's base plus two (the resolver) and plus three, which AWS keeps for future use: there the AWS
emulation meets the nodes. No route leads out of it, so that no packet to a private address ever reaches the
host's own interfaces.
"""

from __future__ import annotations

import ipaddress
import socket
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from ..processes import Identity, end, identify
from .metadata import die_with_parent
from .names import domain
from .namespaces import connection_inside, inside, listener_inside

CLOUD = "cloud"
BRIDGE = "vpc"
ENDPOINT_PORT = 80
ROUTER_MAC = "02:00:0a:00:00:01"
METADATA = "169.254.169.254"
CONNECT_SECONDS = 3.0
LIMIT_SECONDS = 10.0


class NetworkFailed(Exception):
    """A command of the network failed; the text is its own."""


@dataclass(frozen=True)
class Placement:
    """Where a node's interface lies."""

    address: str  # private IPv4
    subnet: str  # CIDR
    vpc: str  # CIDR


def router(subnet: str) -> str:
    return str(ipaddress.ip_network(subnet)[1])


def resolver(vpc: str) -> str:
    return str(ipaddress.ip_network(vpc)[2])


def endpoint_address(vpc: str) -> str:
    return str(ipaddress.ip_network(vpc)[3])


def namespace_of(instance_id: str) -> str:
    return instance_id


def interface_of(instance_id: str) -> str:
    """The bridge's end of a node's cable: 15 characters are the kernel's limit."""
    return "v" + instance_id.removeprefix("i-")[-12:]


def run(*command: str) -> str:
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as fault:
        raise NetworkFailed(f"{' '.join(command)}: {fault}") from fault
    if done.returncode != 0:
        raise NetworkFailed(f"{' '.join(command)}: {done.stderr.strip() or done.returncode}")
    return done.stdout


class CloudNetwork:
    """The namespace of one VPC, its resolver, and the doors between it and the host's loopback."""

    def __init__(self, vpc: str, region: str, log: Path) -> None:
        self.vpc, self.region, self._log = vpc, region, log
        self._subnets: set[str] = set()
        self._resolver: subprocess.Popen[bytes] | None = None
        self._doors: dict[str, socket.socket] = {}

    @property
    def endpoint(self) -> str:
        """Of the AWS emulation, as nodes see it."""
        return f"http://{endpoint_address(self.vpc)}:{ENDPOINT_PORT}"

    def open(self) -> socket.socket:
        """Make it; returns the socket on which the AWS emulation's node-facing end listens."""
        run("ip", "netns", "add", CLOUD)
        self._ip("link", "set", "lo", "up")
        # A fixed address: else the bridge takes the lowest of its ports, and changes it as nodes come and go.
        self._ip("link", "add", BRIDGE, "address", ROUTER_MAC, "type", "bridge")
        self._ip("link", "set", BRIDGE, "up")
        for address in (resolver(self.vpc), endpoint_address(self.vpc)):
            self._ip("address", "add", f"{address}/32", "dev", BRIDGE)
        inside(CLOUD, lambda: Path("/proc/sys/net/ipv4/ip_forward").write_text("1"))
        self._start_resolver()
        return listener_inside(CLOUD, endpoint_address(self.vpc), ENDPOINT_PORT)

    def attach(self, instance_id: str, place: Placement) -> str:
        """Plug a node in; returns the name of its namespace. What an earlier boot left is replaced."""
        name = namespace_of(instance_id)
        self.detach(instance_id)
        if place.subnet not in self._subnets:
            length = ipaddress.ip_network(place.subnet).prefixlen
            self._ip("address", "add", f"{router(place.subnet)}/{length}", "dev", BRIDGE)
            self._subnets.add(place.subnet)
        run("ip", "netns", "add", name)
        cable = interface_of(instance_id)
        self._ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._ip("link", "set", cable, "master", BRIDGE, "up")
        length = ipaddress.ip_network(place.subnet).prefixlen
        for command in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{METADATA}/32", "dev", "lo"),
            ("address", "add", f"{place.address}/{length}", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("route", "add", "default", "via", router(place.subnet)),
        ):
            run("ip", "-n", name, *command)
        return name

    def detach(self, instance_id: str) -> None:
        """Unplug it. The cable is cut first: a namespace is only gone when its last process is."""
        cable, name = interface_of(instance_id), namespace_of(instance_id)
        if inside(CLOUD, lambda: cable in {link for _, link in socket.if_nameindex()}):
            self._ip("link", "delete", cable)
        if name in run("ip", "netns", "list").split():
            run("ip", "netns", "delete", name)

    def open_door(self, loopback: str, place: Placement, port: int) -> None:
        """Let `loopback:port` on the host lead to the node's port, for those outside who read its metrics."""
        door = socket.create_server((loopback, port), backlog=16)
        self._doors[loopback] = door
        threading.Thread(target=_keep_door, args=(door, place.address, port), daemon=True).start()

    def close_door(self, loopback: str) -> None:
        door = self._doors.pop(loopback, None)
        if door is not None:
            door.shutdown(socket.SHUT_RDWR)
            door.close()

    def close(self) -> None:
        for loopback in list(self._doors):
            self.close_door(loopback)
        if self._resolver is not None:
            identity = identify(self._resolver.pid)
            end([identity] if isinstance(identity, Identity) else [], grace_seconds=2)
            self._resolver.wait(timeout=5)

    def _ip(self, *arguments: str) -> None:
        run("ip", "-n", CLOUD, *arguments)

    def _start_resolver(self) -> None:
        """Names as DescribeInstances and the metadata spell them; every other name does not exist."""
        command = [
            "ip", "netns", "exec", CLOUD, "dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--no-resolv",
            "--no-hosts", "--no-daemon", f"--listen-address={resolver(self.vpc)}", "--bind-interfaces",
            f"--synth-domain={domain(self.region)},{self.vpc},ip-", f"--local=/{domain(self.region)}/",
            "--user=root", "--pid-file=",
        ]  # fmt: skip
        with self._log.open("ab") as output:
            self._resolver = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True, preexec_fn=die_with_parent,
            )  # fmt: skip


def _keep_door(door: socket.socket, address: str, port: int) -> None:
    while True:
        try:
            outer, _ = door.accept()
        except OSError:
            return
        threading.Thread(target=_pass_through, args=(outer, address, port), daemon=True).start()


def _pass_through(outer: socket.socket, address: str, port: int) -> None:
    """Both ways until one side ends; a node that does not answer closes the connection, as a refusal would."""
    try:
        inner = connection_inside(CLOUD, address, port, CONNECT_SECONDS)
    except OSError:
        outer.close()
        return
    inner.settimeout(None)
    back = threading.Thread(target=_copy, args=(inner, outer), daemon=True)
    back.start()
    _copy(outer, inner)
    back.join(timeout=60)
    outer.close()
    inner.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return
