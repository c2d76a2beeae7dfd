"""XID errors, read from the kernel log: NVML's own events miss some (79, 119, 120), and its counter never clears.

``/dev/kmsg`` can be read by root or with CAP_SYSLOG; where it cannot, nothing is exported. It is opened for reading
only: with "create" a missing device would become an ordinary file that swallows everything.
"""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

XID_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)")
READ_BYTES = 8192  # one record of the kernel log at most


@dataclass(frozen=True)
class Xid:
    pci_bus_id: str
    code: int


def parse_xid(line: str) -> Xid | None:
    match = XID_LINE.search(line)
    return Xid(match[1], int(match[2])) if match else None


class XidReader:
    """New XIDs since the last call; None from `open` where the log cannot be read."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @classmethod
    def open(cls, path: Path = Path("/dev/kmsg")) -> XidReader | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.lseek(descriptor, 0, os.SEEK_END)  # what was before the agent is the self-check's business
        return cls(descriptor)

    def new(self) -> list[Xid]:
        found = []
        while True:
            try:
                data = os.read(self._descriptor, READ_BYTES)
            except (
                BrokenPipeError
            ):  # EPIPE: records were overwritten before we read them; go on with the next
                continue
            except OSError:  # EAGAIN: nothing new
                break
            if not data:
                break
            found += [xid for line in data.decode(errors="replace").splitlines() if (xid := parse_xid(line))]
        return found

    def close(self) -> None:
        os.close(self._descriptor)
