"""XID errors, read from the kernel log: NVML's own events miss some (79, 119, 120), and its counter never clears.

The log is read with ``journalctl``, which the group systemd-journal may do; ``/dev/kmsg`` needs root or CAP_SYSLOG and
is closed to the agent's service. It is read only where there is no journalctl. Where neither can be read, nothing is
exported. It is opened for reading only: with "create" a missing device would become an ordinary file.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from ..obs.logs import get_logger

XID_LINE = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+)")
READ_BYTES = 64 << 10  # at a time; one record of /dev/kmsg has 8 KiB at most
KMSG = Path("/dev/kmsg")
# What was before the agent is the self-check's business: no lines from before.
JOURNALCTL_ARGUMENTS = ("--dmesg", "--follow", "--lines=0", "--output=short-monotonic", "--quiet")
STOP_SECONDS = 2.0


@dataclass(frozen=True)
class Xid:
    pci_bus_id: str
    code: int


def parse_xid(line: str) -> Xid | None:
    match = XID_LINE.search(line)
    return Xid(match[1], int(match[2])) if match else None


@dataclass
class XidReader:
    """New XIDs since the last call of `new`, which never waits; None from `open` where no log can be read."""

    descriptor: int  # of the log, not blocking
    journalctl: subprocess.Popen[bytes] | None = None
    _rest: bytes = field(default=b"", init=False)  # a line whose end was not read yet
    _over: bool = field(default=False, init=False)

    @classmethod
    def open(cls, kmsg: Path = KMSG) -> XidReader | None:
        """Starts journalctl where there is one, as a child that `close` ends."""
        program = shutil.which("journalctl")
        return cls._of_journal(program) if program else cls._of_kmsg(kmsg)

    @classmethod
    def _of_journal(cls, program: str) -> XidReader | None:
        try:
            process = subprocess.Popen(
                [program, *JOURNALCTL_ARGUMENTS],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return None
        assert process.stdout is not None
        descriptor = process.stdout.fileno()
        os.set_blocking(descriptor, False)
        return cls(descriptor, process)

    @classmethod
    def _of_kmsg(cls, path: Path) -> XidReader | None:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError:
            return None
        with contextlib.suppress(OSError):
            os.lseek(descriptor, 0, os.SEEK_END)
        return cls(descriptor)

    @property
    def available(self) -> bool:
        """False once the log cannot be read any more."""
        return not self._over

    def new(self) -> list[Xid]:
        lines = (self._rest + self._read()).split(b"\n")
        self._rest = lines.pop()[-READ_BYTES:]
        return [xid for line in lines if (xid := parse_xid(line.decode(errors="replace")))]

    def _read(self) -> bytes:
        """All there is at the moment."""
        found = b""
        while not self._over:
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BrokenPipeError:  # EPIPE of /dev/kmsg: records were overwritten before we read them; go on
                continue
            except OSError:  # EAGAIN: nothing new
                break
            if not data:
                self._ended()
                break
            found += data
        return found

    def _ended(self) -> None:
        """End of file: for journalctl the end of it, for a log that is a plain file only the end for now."""
        if self.journalctl is not None:
            self._over = True
            get_logger().warning("journalctl ended: XIDs are not seen any more")

    def close(self) -> None:
        if self.journalctl is None:
            os.close(self.descriptor)
            return
        self.journalctl.terminate()
        try:
            self.journalctl.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.journalctl.kill()
            self.journalctl.wait()
        assert self.journalctl.stdout is not None
        self.journalctl.stdout.close()
