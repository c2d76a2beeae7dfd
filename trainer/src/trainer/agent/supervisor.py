"""The workers of one generation on this node: torchrun in a session of its own, watched and always ended.

torchrun starts each worker in a further session, so that a signal to its process group does not reach them. What is
left is found by an environment variable that all descendants inherit, also by an agent that was restarted.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from ..bench.nccl import nccl_environment
from ..contracts.node_document import NodeDocument
from ..contracts.worker import (
    SAVE_FILE,
    STOP_FILE,
    WORKER_FILE,
    ExitReport,
    StopReason,
    WorkerConfig,
    exit_file,
)
from ..exit_codes import Exit
from .board import WORKER_LOG
from .membership import gravest
from .secret_values import Secrets
from .standby import TORCHRUN, Standby
from .watchdog import RankProcess, rank_processes

# The chain of a stop, each shorter than the one before: systemd 110, agent 100, torchrun 90, save at most 60.
SHUTDOWN_SECONDS = 90
LINGER_SECONDS = (
    2.0  # what is left to a rank between its exit report, or another's sudden end, and its own end
)
SIOCGIFADDR = 0x8915  # linux/sockios.h: an interface's IPv4 address
OWNER_VARIABLE = "TRAINER_GENERATION_DIR"

WorkerArgv = Callable[[WorkerConfig, Path], list[str]]


def torchrun_argv(config: WorkerConfig, folder: Path) -> list[str]:
    generation = config.generation
    return [
        *TORCHRUN,
        *("--nnodes", str(len(generation.members)), "--node-rank", str(config.node_rank)),
        *("--nproc-per-node", str(generation.members[config.node_rank].local_world_size)),
        *("--master-addr", generation.master_address, "--master-port", str(generation.master_port)),
        *("--max-restarts", "0", "-m", "trainer.worker", str(folder / WORKER_FILE)),
    ]


def local_ranks(config: WorkerConfig) -> range:
    """The global ranks of this node's workers."""
    sizes = [member.local_world_size for member in config.generation.members]
    first = sum(sizes[: config.node_rank])
    return range(first, first + sizes[config.node_rank])


def cpu_environment(document: NodeDocument, base: Mapping[str, str]) -> dict[str, str]:
    """One thread a process where nodes train on a CPU: they share its cores, and threads that wait for each other
    on a busy core stall all. Results then do not depend on the number of cores either.
    """
    default = {} if document.promise.accelerator == "nvidia" else {"OMP_NUM_THREADS": "1"}
    return {**default, **base}


def standby_environment(config: WorkerConfig, base: Mapping[str, str]) -> dict[str, str]:
    """What libraries read while they are imported, and the mark of the state folder: no generation's, no secret."""
    environment = cpu_environment(config.document, base)
    if len(local_ranks(config)) > 1:
        environment.setdefault(
            "OMP_NUM_THREADS", "1"
        )  # torchrun's own default, which comes too late for forks
    environment[OWNER_VARIABLE] = config.state_dir
    return environment


def worker_environment(config: WorkerConfig, folder: Path, base: Mapping[str, str]) -> dict[str, str]:
    environment = standby_environment(config, base)
    environment[OWNER_VARIABLE] = str(folder)
    environment["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"] = str(SHUTDOWN_SECONDS)
    nodes = len(config.generation.members)
    for name, value in nccl_environment(config.document.promise.efa_count, nodes).items():
        environment.setdefault(name, value)
    interface = interface_of(config.generation.members[config.node_rank].address)
    if interface is not None:
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)
        environment.setdefault("NCCL_SOCKET_IFNAME", f"={interface}")  # this one, not all that begin so
    return environment


def interface_of(address: str) -> str | None:
    """The interface that has the node's address, or None. By themselves gloo and NCCL choose by name or by chance."""
    if ipaddress.ip_address(address).is_loopback:
        return "lo"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an IPv4 address
                answer = fcntl.ioctl(asking.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if socket.inet_ntoa(answer[20:24]) == address:
                    return name
    return None


@dataclass
class Workers:
    """Started by ``start``, polled by ``poll``; every way out ends in ``kill``, which leaves no process behind."""

    config: WorkerConfig
    folder: Path
    argv: WorkerArgv = torchrun_argv
    secrets: Secrets = field(default_factory=Secrets)
    standby: Standby | None = None
    _process: subprocess.Popen[bytes] | None = None
    _killed: bool = False
    _ranks: list[RankProcess] = field(default_factory=list)
    _over_since: float | None = None

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in (
            STOP_FILE,
            SAVE_FILE,
            *(exit_file(self.folder, rank).name for rank in local_ranks(self.config)),
        ):
            (self.folder / name).unlink(missing_ok=True)
        (self.folder / WORKER_FILE).write_text(self.config.to_json())
        command, log_path = self.argv(self.config, self.folder), self.folder / WORKER_LOG
        environment = {**worker_environment(self.config, self.folder, os.environ), **self.secrets.values}
        if self.standby is not None:
            self._process = self.standby.take(command, environment, log_path)
        if self._process is None:
            with open(log_path, "ab") as log:
                self._process = subprocess.Popen(
                    command,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )

    def know_ranks(self) -> None:
        """Once they train: from now on a rank that ends without a report is seen at once."""
        self._ranks = rank_processes(self.pids())

    def running(self) -> bool:
        """False once nothing runs any more. torchrun, which takes seconds to end after a failure, is not waited for,
        nor are ranks whose peer was killed: in a collective of NCCL's they would wait for it to no end.
        """
        if self._process is None or self._process.poll() is not None:
            return False
        ranks = local_ranks(self.config)
        codes = [report.code for rank in ranks if (report := self._report(rank))]
        killed = self._killed_ranks()
        if len(killed) == len(ranks):
            return False
        if not killed and (len(codes) < len(ranks) or Exit.DONE in codes):
            return True
        self._over_since = self._over_since or time.monotonic()
        return time.monotonic() - self._over_since < LINGER_SECONDS

    def _killed_ranks(self) -> list[int]:
        now = rank_processes(process.pid for process in self._ranks)
        alive = {process.rank for process in now if process.state[:1] not in "ZX"}
        ended = [process.rank for process in self._ranks if process.rank not in alive]
        # Looked for after the end was seen: what was to be written is written.
        return [rank for rank in ended if not exit_file(self.folder, rank).exists()]

    def ask_to_stop(self, reason: StopReason) -> None:
        """All ranks of all nodes stop at one step and save. The first reason counts."""
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(self.folder / STOP_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with os.fdopen(descriptor, "w") as file:
                file.write(reason)

    def ask_to_save(self) -> None:
        """All ranks of all nodes save at the next step and go on."""
        (self.folder / SAVE_FILE).touch()

    def pids(self) -> set[int]:
        """All processes of this generation on this node: torchrun, workers, their loaders."""
        return owned_by(self.folder) | (in_session(self._process.pid) if self._process is not None else set())

    def kill(self) -> None:
        """End them at once, without a save."""
        self._killed = self._killed or self.running()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=10)
        _kill_all(self.pids)

    def result(self) -> ExitReport:
        """End what is left, and tell how the generation ended on this node: by the gravest report of its ranks."""
        killed = self._killed_ranks() if not self._killed else []
        self.kill()
        status = self._process.returncode if self._process is not None else None
        ranks = local_ranks(self.config)
        reports = [report for rank in ranks if (report := self._report(rank))]
        codes = [report.code for report in reports]
        if len(reports) < len(
            ranks
        ):  # a worker that left no report was killed, or its peer took it down with it
            codes.append(int(Exit.PEER_LOST))
        code = gravest(codes)
        step = max((report.step for report in reports if report.step is not None), default=None)
        message = next((report.message for report in reports if report.code == code), None)
        ended = f"a worker was killed before it could report (torchrun: {status})"
        if self._killed:
            ended = "the agent ended the workers before they could report"
        elif killed:
            ended = f"killed before a report: rank {', '.join(map(str, killed))}"
        return ExitReport(code=code, message=message or ended, step=step)

    def _report(self, rank: int) -> ExitReport | None:
        try:
            report = ExitReport.from_json(exit_file(self.folder, rank).read_bytes())
        except (OSError, ValidationError):
            return None
        # A library's error text may quote what it was given, and the message goes into documents and logs.
        return report.model_copy(update={"message": self.secrets.redact(report.message)})


def kill_leftovers(folder: Path) -> int:
    """Kill every process of this user that was started for ``folder`` or below it; returns how many there were.

    ``folder`` may be a generation's, or the state folder for whatever an earlier agent left running.
    """
    return _kill_all(lambda: owned_by(folder))


def _kill_all(find: Callable[[], set[int]], patience_seconds: float = 5.0) -> int:
    """Until none is left: a process that still dies may hold a port or a GPU's memory."""
    found: set[int] = set()
    deadline = time.monotonic() + patience_seconds
    while alive := find():
        found |= alive
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return len(found)


def owned_by(folder: Path) -> set[int]:
    """This user's processes that were started for ``folder`` or below it."""
    mark = f"{OWNER_VARIABLE}=".encode()
    wanted, below = os.fsencode(folder), os.fsencode(folder) + b"/"
    pids = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # somebody else's, or gone
            continue
        for variable in variables:
            value = variable[len(mark) :] if variable.startswith(mark) else None
            if value is not None and (value == wanted or value.startswith(below)):
                pids.add(int(entry.name))
    return pids


def in_session(leader: int) -> set[int]:
    """The living processes of this session: a standby's ranks bear the mark of the state folder, not a generation's."""
    pids = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ValueError, OSError):  # no process, or gone
            if os.getsid(int(entry.name)) == leader and (entry / "cmdline").read_bytes():  # a zombie has none
                pids.add(int(entry.name))
    return pids
