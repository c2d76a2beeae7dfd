"""The agent's main loop: boot, then poll for notices and for the group's run, until the node leaves."""

from __future__ import annotations

import datetime
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from ..contracts import keys
from ..contracts.run import RunPointer
from ..contracts.worker import StopReason
from ..data.sync import drop_streams
from ..errors import ConfigurationError, StoreError
from ..exit_codes import Exit
from ..obs.logs import bind, get_logger
from ..selfcheck.report import SelfCheckReport
from .board import Board
from .boot import SelfCheckArgv, answer_hook, run_selfcheck, selfcheck_argv, show
from .hours import TrainingCount
from .imds import Imds, ImdsUnreachable, Notice, ScheduledEvent
from .lifecycle import NODES_TRAINING
from .node import Node
from .peers import Peers, Probe, connect_all
from .prepare import data_dir
from .session import Session
from .supervisor import kill_leftovers

TICK_SECONDS = 0.2
REPLACED = frozenset({Exit.DEVICE, Exit.RESET, Exit.PERFORMANCE})  # a new machine would do better


@dataclass
class Agent:
    """``run`` returns the exit code of the process; nothing it started is left when it returns."""

    node: Node
    imds: Imds
    document_file: Path
    selfcheck: SelfCheckArgv = selfcheck_argv
    probe: Probe = connect_all
    _peers: Peers | None = None
    _session: Session | None = None
    _report: SelfCheckReport | None = None
    _opened: tuple[str, str] | None = None  # (run, time of the pointer) of the session
    _closed: tuple[str, str] | None = None  # the same, over for this node
    _signals: int = 0
    _notice: str | None = None
    _rebalance: bool = False
    _events: set[str] = field(default_factory=set)  # scheduled events that were told
    _faults: set[str] = field(default_factory=set)
    _training_count: TrainingCount = field(default_factory=TrainingCount)

    def run(self) -> Exit:
        try:
            kill_leftovers(self.node.state_dir)
            drop_streams(data_dir(self.node.document, self.node.state_dir))  # of an agent that was killed
            code = self._boot()
            if code is not None:
                return code
            self._peers = self._open_peers()
            return self._loop(self._peers)
        finally:
            if self._session is not None:
                self._session.close()
            if self._peers is not None:
                self._peers.close()
            kill_leftovers(self.node.state_dir)

    def on_signal(self, _number: int, _frame: object) -> None:
        """SIGTERM: save at a common step and end with 75; a second one ends at once."""
        self._signals += 1

    def refresh(self) -> None:
        """Bring values up to date that depend on the moment of a scrape."""
        if self._session is not None:
            self._session.refresh()

    def worker_pids(self) -> set[int]:
        """All worker processes on this node; asked from the exporter's thread."""
        session = self._session
        return session.worker_pids() if session is not None else set()

    def _boot(self) -> Exit | None:
        node, document = self.node, self.node.document
        node.state.set("trainer_up", 1)
        node.state.set("trainer_info", 1, version=node.versions.trainer, torch=node.versions.torch)
        argv = self.selfcheck(self.document_file, document.self_check.level, node.instance_id)
        log_file = node.state_dir / "log" / "selfcheck.log"
        report = run_selfcheck(argv, document, node.instance_id, log_file, self._heartbeat)
        show(report, node.state)
        self._report = report
        board = Board(node.store, node.board.bucket)  # patient: without its report the node does not start
        return answer_hook(report, document, node.lifecycle, board)

    def _open_peers(self) -> Peers:
        node = self.node
        return Peers(
            address=node.address,
            port=node.document.training_port,
            state=node.state,
            interval_seconds=node.poll_seconds,
            timeout_seconds=node.pace.probe_timeout_seconds,
            probe=self.probe,
        )

    def _heartbeat(self) -> None:
        self.node.lifecycle.heartbeat(self.node.document.launching_hook)

    def _loop(self, peers: Peers) -> Exit:
        next_poll = 0.0
        while True:
            if self._signals > 1:
                return Exit.STOPPED_STALE  # asked twice: at once
            ended = self._session.tick() if self._session else False
            if self._session and self._session.done:
                code = self._session_done(self._session)
                if code is not None:
                    return code
            if ended or time.monotonic() >= next_poll:
                began = time.monotonic()
                self._poll(peers)
                pause = self._session.poll_seconds if self._session else self.node.poll_seconds
                next_poll = began + pause
            self._count_training()
            leaving = self._leave_reason()
            if leaving and self._session is None:
                return self._goodbye(Exit.STOPPED_SAVED)
            if leaving and self._session:
                self._session.leave(leaving)
            time.sleep(TICK_SECONDS)

    def _count_training(self) -> None:
        """For the alarm that stops idle groups. In a thread: CloudWatch may be slow, the loop may not."""
        if self.node.document.idle_stop_minutes is None:
            return
        trains = self._session is not None and self._session.busy
        value = self._training_count.look(time.monotonic(), trains)
        if value is not None:
            arguments = (NODES_TRAINING, value)
            threading.Thread(target=self.node.lifecycle.count, args=arguments, daemon=True).start()

    def _poll(self, peers: Peers) -> None:
        self._look_for_notices()
        try:
            pointer = self.node.board.pointer(self.node.document.group)
            if self._session is None and pointer is not None and not self._leave_reason():
                self._open(pointer, peers)
            if self._session is not None:
                run = self._session.run.name
                stop = pointer is not None and (pointer.run != run or pointer.action == "stop")
                self._session.poll(stop_requested=stop)
            self._faults.clear()
        except (StoreError, ConfigurationError) as error:
            self._log_once(str(error))

    def _open(self, pointer: RunPointer, peers: Peers) -> None:
        """Join the run that the group is pointed to, unless it is over, not for this group, or seen already."""
        if self._closed == (pointer.run, pointer.updated_at):
            return
        board, group = self.node.board, self.node.document.group
        config = board.config(pointer.run)
        if config is None or group not in config.groups:
            raise ConfigurationError(
                f"groups/{group}/run.json names the run {pointer.run}, which is not for this group"
            )
        if board.result(pointer.run) is not None:
            self._closed = (pointer.run, pointer.updated_at)
            return
        self._session = Session.open(self.node, config, peers)
        self._opened = (pointer.run, pointer.updated_at)
        if self._report is not None:
            board.put_text(keys.run_selfcheck(pointer.run, self.node.instance_id), self._report.to_json())
        get_logger().info("run found", action=pointer.action, nodes=config.nodes)

    def _session_done(self, session: Session) -> Exit | None:
        if session.leave_code is not None:
            return self._goodbye(session.leave_code)
        if session.node_fault is not None:
            if session.node_fault in REPLACED:
                self.node.lifecycle.ask_for_replacement()
            return session.node_fault
        session.close()
        self._session = None
        self._closed = self._opened
        self.node.state.clear("trainer_run_info")
        if session.run.on_finish == "release" or session.released:
            # The node's root helper takes it out of its group. Where the group's minimum size needs it, the agent is
            # started again; the run has its result then and is not opened a second time.
            return self._goodbye(Exit.DONE)
        bind(run=None, generation=None, rank=None, step=None)
        return None

    def _goodbye(self, code: Exit) -> Exit:
        if self._notice in ("spot", "scheduled"):
            # Everything is saved: given up now, the node is replaced before EC2 takes it.
            self.node.lifecycle.ask_for_replacement()
        elif self._notice == "termination":
            self.node.lifecycle.complete(self.node.document.terminating_hook, "CONTINUE")
        get_logger().info("leaving", code=int(code), name=code.name)
        return code

    def _look_for_notices(self) -> None:
        state = self.node.state
        try:
            notice = self.imds.notice()
            rebalance = self.imds.rebalance_recommended()
            events = self.imds.scheduled_events()
        except ImdsUnreachable as error:
            state.set("trainer_imds_up", 0)
            self._log_once(f"metadata service: {error}")
            return
        state.set("trainer_imds_up", 1)
        notice = notice or self._scheduled(events)
        if notice is not None and self._notice is None:
            self._notice = notice.kind
            if notice.kind != "scheduled":  # counted when it was announced
                state.add("trainer_interruption_notices_total", kind=notice.kind)
            get_logger().warning("interruption notice", kind=notice.kind, at=notice.at)
        if rebalance and not self._rebalance:
            state.add("trainer_interruption_notices_total", kind="rebalance")
            get_logger().warning("rebalance recommended: an interruption is likely, the run saves now")
            if self._session is not None:
                self._session.save()
        self._rebalance = rebalance

    def _scheduled(self, events: list[ScheduledEvent]) -> Notice | None:
        """Tell each event once; a notice where one takes the machine away soon."""
        now = datetime.datetime.now(datetime.timezone.utc)
        notice = None
        for event in events:
            at = event.not_before.isoformat() if event.not_before else None
            if event.event_id not in self._events:
                self._events.add(event.event_id)
                self.node.state.add("trainer_interruption_notices_total", kind="scheduled")
                get_logger().warning(
                    "maintenance scheduled", code=event.code, event_id=event.event_id, not_before=at
                )
            if event.is_notice(now):
                notice = Notice("scheduled", at)
        return notice

    def _leave_reason(self) -> StopReason | None:
        if self._signals:
            return "sigterm"
        return "notice" if self._notice else None

    def _log_once(self, fault: str) -> None:
        """A fault that lasts is one line, not one a second."""
        if fault not in self._faults:
            get_logger().warning("poll failed, trying again", error=fault)
        self._faults.add(fault)
