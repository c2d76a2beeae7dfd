"""One generation on this node: its workers, what they tell, and every reason to end them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from ..contracts.run import Generation
from ..contracts.worker import ExitReport, StopReason, WorkerConfig, WorkerEvent, events_file, generation_dir
from ..exit_codes import Exit
from ..obs.logs import bind, get_logger
from .board import WORKER_LOG
from .events import Meter, Tail
from .node import Node
from .secret_values import Secrets
from .standby import Standby
from .supervisor import Workers, local_ranks
from .uploads import Logs
from .watchdog import Watchdog, ask_for_stacks, describe, rank_processes

STOP_SECONDS = 100.0  # the agent's share of a stop; then workers are killed
STACK_BYTES = 16 << 10  # of a dump that go into the agent's log; worker.log has all


@dataclass
class Training:
    """Started once, then ``tick`` several times a second until it is False; ``result`` ends whatever is left."""

    node: Node
    config: WorkerConfig
    meter: Meter
    secrets: Secrets = field(default_factory=Secrets)
    standby: Standby | None = None
    workers: Workers = field(init=False)
    logs: Logs = field(init=False)
    began: float = 0.0
    _tail: Tail = field(init=False)
    _watchdog: Watchdog = field(init=False)
    _kill_at: float | None = None  # of a stop
    _hang: str | None = None
    _dumped_at: float = 0.0
    _log_offset: int = 0
    _stepped: bool = False
    _ended_for: str | None = None

    def __post_init__(self) -> None:
        folder = generation_dir(self.node.state_dir, self.config.run.name, self.generation.n)
        self.workers = Workers(self.config, folder, self.node.worker_argv, self.secrets, self.standby)
        self.logs = Logs(self.node, self.workers)
        self._tail = Tail(events_file(folder, local_ranks(self.config)[0]))

    @property
    def generation(self) -> Generation:
        return self.config.generation

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def stopping(self) -> bool:
        return self._kill_at is not None

    @property
    def settled(self) -> bool:
        """It has made steps, and has run long enough to think of the next generation."""
        return self.meter.progressed() and self.seconds >= self.node.pace.standby_seconds

    def start(self) -> None:
        self.began = time.monotonic()
        self._watchdog = Watchdog(self.node.pace, self.began)
        self.workers.start()
        state, n = self.node.state, self.generation.n
        bind(generation=n, rank=local_ranks(self.config)[0], step=None)
        state.set("trainer_generation", n)
        state.set("trainer_run_active", 1)
        state.clear("trainer_straggler_ratio")
        if n > 1:
            state.add("trainer_recoveries_total")
        members = len(self.generation.members)
        get_logger().info("workers started", node_rank=self.config.node_rank, members=members)

    def tick(self) -> bool:
        """True while workers run."""
        self._read_events()
        if not self.workers.running():
            return False
        now = time.monotonic()
        if self._kill_at is not None and now > self._kill_at:
            get_logger().error("workers did not stop in time and are killed", seconds=STOP_SECONDS)
            self.end(f"the workers did not stop within {STOP_SECONDS:.0f} s")
        elif self._hang is not None:
            if now - self._dumped_at >= self.node.pace.hang_dump_seconds:
                self._log_stacks()
                self.end(self._hang)
        elif (hang := self._watchdog.overdue(now)) is not None:
            self._dump(hang, now)
        return True

    def stop(self, reason: StopReason) -> None:
        """Stop at a common step and save; the first reason counts."""
        if self._kill_at is None:
            self.workers.ask_to_stop(reason)
            self._kill_at = time.monotonic() + STOP_SECONDS

    def end(self, why: str) -> None:
        """End the workers at once, without a save."""
        self._ended_for = self._ended_for or why
        self.workers.kill()

    def result(self) -> ExitReport:
        """How it ended here; where that follows from the agent's ending them, why the agent did."""
        self._read_events()
        result = self.workers.result()
        cause = self._ended_for or self._hang  # hung workers may end by themselves once a peer's are ended
        if cause is not None and result.code == Exit.PEER_LOST:
            result = result.model_copy(update={"message": cause})
        self.node.state.set("trainer_run_active", 0)
        self.meter.ended()
        get_logger().info("workers ended", code=result.code, reason=result.message, step=self.meter.step)
        return result

    def _read_events(self) -> None:
        for event in self._tail.read():
            self.meter.take(event)
            if event.kind == "step" and not self._stepped:
                self._stepped = True
                self.workers.know_ranks()
            self._watchdog.take(event, time.monotonic())
            bind(step=self.meter.step)
            if event.kind == "straggler":
                self._straggler(event)

    def _straggler(self, event: WorkerEvent) -> None:
        state = self.node.state
        state.clear("trainer_straggler_ratio")
        if event.slow_rank is None or event.ratio is None:
            return
        instance_id = self._instance_of(event.slow_rank)
        state.set("trainer_straggler_ratio", event.ratio, peer=instance_id)
        get_logger().warning(
            f"straggler: rank {event.slow_rank} on {instance_id} takes {event.ratio:.1f} times "
            "as long for its own work as the median rank; all others wait for it",
            step=event.step,
        )

    def _instance_of(self, rank: int) -> str:
        for member in self.generation.members:
            if rank < member.local_world_size:
                return member.instance_id
            rank -= member.local_world_size
        return "unknown"

    def _dump(self, hang: str, now: float) -> None:
        processes = rank_processes(self.workers.pids())
        self._hang, self._dumped_at = f"{hang}: {describe(processes)}", now
        self.node.state.add("trainer_hangs_total")
        log = get_logger()
        log.error("hang: workers write their stacks and are ended", reason=self._hang)
        for process in processes:
            log.error("hung worker", rank=process.rank, state=process.state, wchan=process.wchan)
        self._log_offset = self._log_size()
        ask_for_stacks(processes)

    def _log_stacks(self) -> None:
        path = self.workers.folder / WORKER_LOG
        if self._log_size() > self._log_offset:
            with open(path, "rb") as file:
                file.seek(self._log_offset)
                stacks = file.read(STACK_BYTES).decode(errors="replace")
            get_logger().error("stacks of the hung workers", stacks=self.secrets.redact(stacks))
        else:
            get_logger().error("the hung workers wrote no stacks", file=WORKER_LOG)

    def _log_size(self) -> int:
        path = self.workers.folder / WORKER_LOG
        return path.stat().st_size if path.is_file() else 0
