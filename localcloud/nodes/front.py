"""The gateway process in front of the AWS emulation, which is what nodes take for AWS; it ends with the driver."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from ..processes import end, identify
from .metadata import die_with_parent
from .site import Site

READY_LIMIT_SECONDS = 20.0


class FrontFailed(Exception):
    """The gateway did not come up; the text says where its log is."""


class Front:
    """`listeners`: descriptors of sockets to listen on; without any it takes a free port of loopback.

    The rules of faults and the log of injected ones lie in `.local/gateway/`. Comes back before it serves; a
    socket of the caller's keeps nodes waiting until then.
    """

    def __init__(self, site: Site, listeners: Sequence[int] = ()) -> None:
        folder, self._log = site.local / "gateway", site.local / "log" / "gateway.log"
        for made in (folder, self._log.parent):
            made.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "localcloud.gateway", "--upstream", site.endpoint]
        command += ["--state", str(folder)]
        for number in listeners:
            command += ["--listen-fd", str(number)]
        with self._log.open("ab") as faults:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=faults,
                pass_fds=tuple(listeners), start_new_session=True, preexec_fn=die_with_parent,
                cwd=Path(__file__).parents[2],
            )  # fmt: skip

    def wait(self) -> str:
        """Its endpoint, once it serves. Raises FrontFailed."""
        output = self._process.stdout
        assert output is not None
        ready = select.select([output], [], [], READY_LIMIT_SECONDS)[0]
        line = output.readline() if ready else b""
        if not line:
            self.close()
            raise FrontFailed(f"the gateway did not come up (log: {self._log})")
        return json.loads(line)["endpoint"]

    def close(self) -> None:
        if (found := identify(self._process.pid)) is not None:
            end([found], grace_seconds=2)
        self._process.wait(timeout=5)
        if self._process.stdout is not None:
            self._process.stdout.close()
