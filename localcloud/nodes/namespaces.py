"""The driver's own mount namespace, and sockets inside network namespaces.

Everything that a machine node needs of the kernel (network namespaces' names, overlay mounts, nspawn's folders) is
mounted in a mount namespace of the driver alone. When the driver and its nodes are gone, in whatever way, the kernel
takes all of it along: there is nothing to clean up, and nothing to see in the host's own tables.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ENTERED = "GPU_TRAINING_MOUNTS"  # environment variable: this process has its own mounts already
NAMES = Path("/run/netns")  # where `ip netns` keeps its names
CLONE_NEWNET = 0x40000000

T = TypeVar("T")


def enter_own_mounts(arguments: list[str]) -> None:
    """Start this very program anew, in the same process, with its own mounts; returns at once the second time.

    `arguments` are those of `python`: for example `["-m", "localcloud.nodes", ...]`.
    """
    if os.environ.get(ENTERED):
        # Only under the names' folder are mounts passed on, which is what `ip netns` needs; nothing leaves this tree.
        for folder in (NAMES, Path("/run/systemd/nspawn")):
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(folder)], check=True)
        del os.environ[ENTERED]  # nodes and later drivers decide for themselves
        return
    unshare = shutil.which("unshare") or "unshare"
    command = [unshare, "--mount", "--propagation", "private", sys.executable, *arguments]
    os.execve(unshare, command, {**os.environ, ENTERED: "1"})


def inside(name: str, make: Callable[[], T]) -> T:
    """Call `make` in the network namespace of that name: a socket made there belongs to it wherever it is used."""
    result: list[T] = []
    fault: list[BaseException] = []
    libc = ctypes.CDLL(None, use_errno=True)

    def body() -> None:  # the thread alone changes its namespace, and ends in it
        try:
            descriptor = os.open(NAMES / name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                if libc.setns(descriptor, CLONE_NEWNET) != 0:
                    number = ctypes.get_errno()
                    raise OSError(number, os.strerror(number), str(NAMES / name))
            finally:
                os.close(descriptor)
            result.append(make())
        except BaseException as error:
            fault.append(error)

    thread = threading.Thread(target=body, name=f"inside-{name}")
    thread.start()
    thread.join()
    if fault:
        raise fault[0]
    return result[0]


def listener_inside(name: str, address: str, port: int) -> socket.socket:
    return inside(name, lambda: socket.create_server((address, port), backlog=128))


def connection_inside(name: str, address: str, port: int, timeout_seconds: float) -> socket.socket:
    return inside(name, lambda: socket.create_connection((address, port), timeout=timeout_seconds))
