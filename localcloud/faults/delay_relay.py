"""A cable that delays: bridges frames between two interfaces and holds each one back, where the kernel has no netem.

    python delay_relay.py IFACE_A IFACE_B --milliseconds M [--jitter J] [--seed N] [--also IFACE ...]
    python delay_relay.py --only-offloads IFACE [IFACE ...]

Started by path inside a network namespace, as root, with the standard library only. Every frame is delayed by M
milliseconds, plus or minus up to J, in each direction; order is kept. It prints `relaying ...` once it does, and runs
until SIGTERM. Exit code 1 and one line on standard error: an interface cannot be used or is gone.

What it takes in must be whole frames as on a cable. So checksum and segmentation offloads are switched off on its
interfaces, and must be on the other ends of their cables too: `--also` for those in the same namespace,
`--only-offloads` inside any other one.
"""

from __future__ import annotations

import argparse
import array
import errno
import fcntl
import random
import select
import signal
import socket
import struct
import sys
import time
from collections import deque

ETH_P_ALL = 3
SOL_PACKET = 263
PACKET_ADD_MEMBERSHIP = 1
PACKET_IGNORE_OUTGOING = (
    23  # what this machine itself sends on the interface, the relay's own frames among it
)
PACKET_MR_PROMISC = 1
SO_RCVBUFFORCE = 33
RECEIVE_BYTES = 16 << 20
LARGEST_FRAME = 1 << 17
AT_ONCE = 64  # frames taken from one interface before the other's turn

SIOCETHTOOL = 0x8946
# linux/ethtool.h: the commands that read and write each feature.
OFFLOADS = {
    "transmit checksums": (0x16, 0x17),
    "TCP segmentation": (0x1E, 0x1F),
    "generic segmentation": (0x23, 0x24),
    "generic receive": (0x2B, 0x2C),
}


class RelayFailed(Exception):
    """The text says which interface and why."""


def _ethtool(control: socket.socket, interface: str, command: int, value: int = 0) -> int:
    request = array.array("B", struct.pack("II", command, value))  # struct ethtool_value
    address, _ = request.buffer_info()
    fcntl.ioctl(control, SIOCETHTOOL, struct.pack("16sP16x", interface.encode(), address))
    return int(struct.unpack("II", request.tobytes())[1])


def offloads_off(interface: str) -> None:
    """Raises RelayFailed where one cannot be switched off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for name, (read, write) in OFFLOADS.items():
            try:
                if _ethtool(control, interface, read):
                    _ethtool(control, interface, write, 0)
                still_on = _ethtool(control, interface, read)
            except OSError as fault:
                raise RelayFailed(
                    f"{interface}: {name} offload cannot be switched off: {fault.strerror}"
                ) from None
            if still_on:
                raise RelayFailed(f"{interface}: {name} offload stays on")


def attach(interface: str) -> socket.socket:
    """Every frame that comes in by the interface, whomever it is for. Raises RelayFailed."""
    try:
        index = socket.if_nametoindex(interface)
        link = socket.socket(
            socket.AF_PACKET, socket.SOCK_RAW, 0
        )  # protocol 0: nothing comes in before it is bound
        link.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BYTES)
        promiscuous = struct.pack("iHH8s", index, PACKET_MR_PROMISC, 0, b"")
        link.setsockopt(SOL_PACKET, PACKET_ADD_MEMBERSHIP, promiscuous)
        link.bind((interface, ETH_P_ALL))
        link.setblocking(False)
    except OSError as fault:
        raise RelayFailed(f"{interface}: {fault.strerror or fault}") from None
    return link


class Direction:
    """What came in by one interface and goes out by the other; times in seconds."""

    def __init__(
        self, source: socket.socket, target: socket.socket, delay: float, jitter: float, chance: random.Random
    ):
        self.source, self.target = source, target
        self._delay, self._jitter, self._chance = delay, jitter, chance
        self._held: deque[tuple[float, bytes]] = deque()  # when it is due, the frame
        self._last_due = 0.0
        self._told = False

    @property
    def next_due(self) -> float | None:
        return self._held[0][0] if self._held else None

    def take(self) -> None:
        for _ in range(AT_ONCE):
            try:
                frame = self.source.recv(LARGEST_FRAME)
            except BlockingIOError:
                return
            except OSError as fault:
                raise RelayFailed(f"{self.source.getsockname()[0]}: {fault.strerror}") from None
            due = time.monotonic() + self._delay + self._chance.uniform(-self._jitter, self._jitter)
            self._last_due = max(self._last_due, due)
            self._held.append((self._last_due, frame))

    def give(self) -> None:
        """Send on what is due. A link that is full or down loses frames, as one does."""
        while self._held and self._held[0][0] <= time.monotonic():
            _, frame = self._held.popleft()
            try:
                self.target.send(frame)
            except OSError as fault:
                if fault.errno == errno.EMSGSIZE and not self._told:
                    self._told = True
                    words = "offloads are on at the other end of the cable it came from"
                    print(f"delay_relay: a frame of {len(frame)} bytes is dropped: {words}", file=sys.stderr)
                elif fault.errno not in (errno.EMSGSIZE, errno.ENOBUFS, errno.EAGAIN, errno.ENETDOWN):
                    raise RelayFailed(f"{self.target.getsockname()[0]}: {fault.strerror}") from None


def relay(interfaces: tuple[str, str], delay: float, jitter: float, seed: int) -> None:
    """Until SystemExit."""
    first, second = (attach(interface) for interface in interfaces)
    chance = random.Random(seed)
    ways = [
        Direction(first, second, delay, jitter, chance),
        Direction(second, first, delay, jitter, chance),
    ]
    print(f"relaying between {interfaces[0]} and {interfaces[1]}: {1000 * delay:g} ms", flush=True)
    while True:
        due = [way.next_due for way in ways if way.next_due is not None]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        ready, _, _ = select.select([first, second], [], [], wait)
        for way in ways:
            if way.source in ready:
                way.take()
            way.give()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="delay_relay.py", description="Bridge two interfaces with a delay.")
    parser.add_argument("interfaces", nargs="*", metavar="IFACE")
    parser.add_argument("--milliseconds", type=float, help="delay of each frame, one way")
    parser.add_argument(
        "--jitter", type=float, default=0.0, help="milliseconds that it varies by, up and down"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the jitter")
    parser.add_argument("--also", action="append", default=[], metavar="IFACE", help="without offloads, too")
    parser.add_argument("--only-offloads", nargs="+", metavar="IFACE", help="switch them off and end")
    asked = parser.parse_args(argv)
    if not asked.only_offloads:
        if len(asked.interfaces) != 2 or asked.milliseconds is None:
            parser.error("name two interfaces and --milliseconds, or --only-offloads")
        if not 0 <= asked.jitter <= asked.milliseconds:
            parser.error("--jitter must lie between 0 and --milliseconds")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        for interface in asked.only_offloads or [*asked.interfaces, *asked.also]:
            offloads_off(interface)
        if not asked.only_offloads:
            first, second = asked.interfaces
            relay((first, second), asked.milliseconds / 1000, asked.jitter / 1000, asked.seed)
    except RelayFailed as fault:
        print(f"delay_relay: {fault}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
