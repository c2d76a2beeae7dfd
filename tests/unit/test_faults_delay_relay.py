"""The relay stands between two machines, which are two network namespaces here, as the only way from one to the other.

    left  eth0 -- a  middle  b -- eth0  right

Needs root and `ip`: where the machine lacks them the tests fail and say so.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from localcloud.faults import delay_relay
from localcloud.nodes.namespaces import connection_inside, inside, listener_inside

RELAY = Path(delay_relay.__file__)
LEFT_ADDRESS, RIGHT_ADDRESS = "10.77.0.1", "10.77.0.2"
LIMIT_SECONDS = 30.0


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr.strip()}"


@dataclass
class Cable:
    left: str  # namespaces
    middle: str
    right: str

    def command(self, namespace: str, *arguments: str) -> list[str]:
        return ["ip", "netns", "exec", namespace, sys.executable, str(RELAY), *arguments]

    def offloads_off(self) -> None:
        for end in (self.left, self.right):
            command = self.command(end, "--only-offloads", "eth0")
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
            assert done.returncode == 0, done.stderr

    @contextmanager
    def relayed(self, milliseconds: float, *more: str) -> Iterator[subprocess.Popen[str]]:
        command = self.command(self.middle, "a", "b", "--milliseconds", str(milliseconds), *more)
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("relaying"), line + process.stderr.read()
            yield process
        finally:
            process.kill()
            process.wait(timeout=10)
            process.stdout.close()
            process.stderr.close()

    @contextmanager
    def connected(self, serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
        """A connection from left to right; what is accepted there is handed to `serve` in a thread."""
        listener = listener_inside(self.right, RIGHT_ADDRESS, 7000)
        listener.settimeout(LIMIT_SECONDS)

        def body() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.settimeout(LIMIT_SECONDS)
                serve(accepted)

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        with listener, connection_inside(self.left, RIGHT_ADDRESS, 7000, LIMIT_SECONDS) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connection
        thread.join(timeout=LIMIT_SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def cable() -> Iterator[Cable]:
    assert os.geteuid() == 0, "the relay needs root: network namespaces and raw sockets"
    assert shutil.which("ip"), "the relay's test needs `ip` (Debian: iproute2)"
    names = [f"relay-{side}-{os.getpid()}" for side in ("left", "middle", "right")]
    made: list[str] = []
    try:
        for name in names:
            ip("netns", "add", name)
            made.append(name)
        left, middle, right = names
        for end, inner, address in ((left, "a", LEFT_ADDRESS), (right, "b", RIGHT_ADDRESS)):
            ip(
                "-n",
                middle,
                "link",
                "add",
                "name",
                inner,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                end,
            )
            ip("-n", middle, "link", "set", "dev", inner, "up")
            ip("-n", end, "address", "add", f"{address}/24", "dev", "eth0")
            ip("-n", end, "link", "set", "dev", "eth0", "up")
        yield Cable(left, middle, right)
    finally:
        for name in made:
            subprocess.run(["ip", "netns", "delete", name], timeout=10, check=False)


def echo(connection: socket.socket) -> None:
    while data := connection.recv(65536):
        connection.sendall(data)


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send all of it while what comes back is read."""
    sender = threading.Thread(target=connection.sendall, args=(data,), daemon=True)
    sender.start()
    back = bytearray()
    while len(back) < len(data):
        part = connection.recv(65536)
        assert part, f"the connection ended after {len(back)} bytes"
        back += part
    sender.join(timeout=LIMIT_SECONDS)
    return bytes(back)


def test_a_mebibyte_goes_through_and_back_and_every_round_trip_takes_twice_the_delay(cable: Cable):
    cable.offloads_off()
    data = random.Random(1).randbytes(1 << 20)
    with cable.relayed(10) as process:
        with cable.connected(echo) as connection:
            for number in range(5):
                began = time.monotonic()
                assert exchange(connection, bytes([number])) == bytes([number])
                assert time.monotonic() - began >= 0.020
            assert exchange(connection, data) == data
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""  # no frame was larger than a cable's


def test_jitter_keeps_the_order(cable: Cable):
    cable.offloads_off()
    order: list[int] = []

    def receive() -> None:
        receiver.settimeout(LIMIT_SECONDS)
        while len(order) < 60:
            order.append(int.from_bytes(receiver.recv(16), "big"))

    with cable.relayed(10, "--jitter", "10", "--seed", "3"):
        receiver = datagrams(cable.right, RIGHT_ADDRESS)
        sender = datagrams(cable.left, LEFT_ADDRESS)
        thread = threading.Thread(target=receive, daemon=True)
        thread.start()
        with sender, receiver:
            for number in range(60):
                sender.sendto(number.to_bytes(2, "big"), (RIGHT_ADDRESS, 7001))
            thread.join(timeout=LIMIT_SECONDS)
    assert order == list(range(60))


def datagrams(namespace: str, address: str) -> socket.socket:
    def make() -> socket.socket:
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((address, 7001))
        return made

    return inside(namespace, make)


def test_an_interface_that_is_not_there_is_named(cable: Cable):
    command = cable.command(cable.middle, "a", "nowhere", "--milliseconds", "1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("delay_relay: nowhere: ")
    assert len(done.stderr.splitlines()) == 1
