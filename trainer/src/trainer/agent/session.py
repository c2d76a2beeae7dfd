"""One run on this node: prepare, be a member, train generation after generation, until the run has its result."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal

from ..contracts.run import Generation, MemberReport, RunConfig, RunResult
from ..contracts.worker import ExitReport, StopReason, WorkerConfig, events_file, generation_dir
from ..errors import Fault, StoreError
from ..exit_codes import Exit
from ..obs.logs import bind, get_logger
from . import generation as rules
from . import uploads
from .board import utc_now
from .events import Meter, Tail, progress_of
from .membership import Attempts, Observer
from .node import Node, free_port
from .prepare import in_background
from .supervisor import Workers, local_ranks

LOG_SECONDS = 10.0  # how often the run's events are uploaded while it trains
STOP_SECONDS = 100.0  # the agent's share of a stop; then workers are killed
PREPARE_TRIES = 8

# Faults of this node alone: it leaves the run, the agent ends with the code, the run goes on with a replacement.
NODE_FAULTS = frozenset({Exit.DEVICE, Exit.REBOOT, Exit.RESET, Exit.PERFORMANCE, Exit.DRIVER})


@dataclass
class Session:
    node: Node
    run: RunConfig
    report: MemberReport
    observer: Observer = field(default_factory=Observer)
    attempts: Attempts = field(default_factory=Attempts)
    over: bool = False
    node_fault: Exit | None = None
    leave_code: Exit | None = None  # set when a stop for a notice or SIGTERM is complete
    _leaving: StopReason | None = None
    _workers: Workers | None = None
    _tail: Tail | None = None
    _meter: Meter = field(init=False)
    _preparation: Future[None] | None = None
    _prepare_tries: int = 0
    _kill_at: float | None = None
    _hold_until: float = 0.0
    _ready_since: float | None = None
    _next_upload: float = 0.0
    _last_wait: str = ""

    def __post_init__(self) -> None:
        self._meter = Meter(self.node.state)

    @classmethod
    def open(cls, node: Node, run: RunConfig) -> Session:
        """Go on from this node's own last report, if there is one (the agent was restarted, the node rebooted)."""
        old = node.board.reports(run.name).get(node.instance_id)
        state: Literal["ready", "finished"] = "finished" if old and old.state == "finished" else "ready"
        report = MemberReport(
            member=node.member,
            versions=node.versions,
            state=state,
            generation=old.generation if old else 0,
            exit_code=old.exit_code if old and old.state != "failed" else None,
            beat=old.beat + 1 if old else 0,
        )
        bind(run=run.name)
        node.state.clear("trainer_run_info")
        node.state.set("trainer_run_info", 1, run=run.name)
        node.state.set("trainer_run_active", 0)
        node.state.set("trainer_checkpoint_period_seconds", run.training.checkpoint.every_seconds)
        return cls(node, run, report)

    # Everything below is called from the agent's loop, several times a second (`tick`) or once a poll (`poll`).

    @property
    def done(self) -> bool:
        return self.over or self.node_fault is not None or self.leave_code is not None

    @property
    def training(self) -> bool:
        return self._workers is not None

    def tick(self) -> bool:
        """Follow the workers; True when they have just ended, so that a poll is due at once."""
        if self._workers is None:
            if self._leaving:
                self._left(Exit.STOPPED_SAVED)
            return False
        self._read_events()
        if self._workers.running():
            if self._kill_at is not None and time.monotonic() > self._kill_at:
                get_logger().error("workers did not stop in time and are killed", seconds=STOP_SECONDS)
                self._workers.kill()
            return False
        self._generation_ended(self._workers)
        return True

    def leave(self, reason: StopReason) -> None:
        """Stop at a common step, save, and leave the run; `leave_code` tells when that is done."""
        if self._leaving is None:
            self._leaving = reason
            self._stop(reason)

    def poll(self, stop_requested: bool) -> None:
        """Beat, look, decide, act. Raises StoreError when S3 is out of reach: the next poll tries again."""
        if not self._leaving and not self._prepared(stop_requested):
            return
        node, run = self.node, self.run.name
        self._put_report()
        if self._leaving:
            return
        reports = node.board.reports(run) | {node.instance_id: self.report}
        life_cycles = node.lifecycle.life_cycles(reports)
        if life_cycles is None:  # no answer: nobody is given up for it
            life_cycles = dict.fromkeys(reports, "InService")
        generation, etag = node.board.generation(run)
        now = time.monotonic()
        action = rules.decide(
            rules.View(
                me=node.instance_id,
                run=self.run,
                stop_requested=stop_requested,
                generation=generation,
                peers=self.observer.look(node.instance_id, reports, life_cycles, now),
                waited_seconds=now - self._ready_since if self._ready_since is not None else 0.0,
                hold_seconds=max(0.0, self._hold_until - now),
                over=node.board.result(run) is not None,
            )
        )
        self._act(action, reports, etag)
        if self._workers is not None and now >= self._next_upload:
            uploads.events(self.node, self._workers)
            self._next_upload = now + LOG_SECONDS

    def close(self) -> None:
        """End whatever still runs."""
        if self._workers is not None:
            self._workers.kill()
            self._workers = None

    def refresh(self) -> None:
        """Ages, at the moment of a scrape."""
        saved = self._meter.checkpoint_at
        self.node.state.set(
            "trainer_checkpoint_age_seconds", time.time() - saved if saved is not None else None
        )

    def _act(self, action: rules.Action, reports: dict[str, MemberReport], etag: str | None) -> None:
        log = get_logger()
        if isinstance(action, rules.Wait):
            if action.why != self._last_wait:
                log.info("waiting", why=action.why)
            self._last_wait = action.why
        elif isinstance(action, rules.Publish):
            self._publish(action, reports, etag)
        elif isinstance(action, rules.Start):
            self._start(action)
        elif isinstance(action, rules.Stop):
            if self._kill_at is None:
                log.warning("stopping workers", why=action.why, save=action.save)
            if action.save:
                self._stop("user")
            elif self._workers is not None:
                self._workers.kill()
        elif isinstance(action, rules.Conclude):
            self._conclude(action)
        else:
            log.info("the run is over")
            self.over = True

    def _prepared(self, stop_requested: bool) -> bool:
        """True when this node is a member. Dataset and user package come in a thread; polls go on meanwhile."""
        if self._ready_since is not None or stop_requested:
            return True
        if self._preparation is None:
            get_logger().info("preparing", dataset=self.run.training.dataset)
            self._prepare_tries += 1
            node = self.node
            self._preparation = in_background(node.board.store, node.document, self.run, node.state_dir)
        if not self._preparation.done():
            return False
        error, self._preparation = self._preparation.exception(), None
        if error is None:
            self._ready_since = time.monotonic()
        elif isinstance(error, StoreError) and self._prepare_tries < PREPARE_TRIES:
            get_logger().warning("preparation failed, trying again", error=str(error))
            return False
        else:
            code = error.exit_code if isinstance(error, Fault) else Exit.BUG
            get_logger().error("preparation failed", error=str(error), code=int(code))
            self._ready_since = time.monotonic()
            self._set(state="failed", exit_code=int(code), message=str(error))
        return True

    def _publish(self, action: rules.Publish, reports: dict[str, MemberReport], etag: str | None) -> None:
        generation = Generation(
            n=action.n,
            members=[reports[id_].member for id_ in action.members],
            master_address=self.node.address,  # the publisher is rank 0
            master_port=free_port(self.node.document.training_port),
            versions=self.node.versions,
            published_at=utc_now(),
        )
        if self.node.board.publish(self.run.name, generation, etag):
            get_logger().info("generation published", n=action.n, members=list(action.members))
        else:
            get_logger().info("another leader was first", n=action.n)

    def _start(self, action: rules.Start) -> None:
        node, generation = self.node, action.generation
        config = WorkerConfig(
            run=self.run,
            generation=generation,
            node_rank=action.node_rank,
            document=node.document,
            state_dir=str(node.state_dir),
            data_dir=str(node.state_dir / "data"),
            device="cuda" if node.document.promise.accelerator == "nvidia" else "cpu",
        )
        # First the word that this node runs n, then the deed: a crash in between leads to n+1, never to n twice.
        self._set(state="running", generation=generation.n, exit_code=None, message=None)
        self._put_report()
        folder = generation_dir(node.state_dir, self.run.name, generation.n)
        self._workers = Workers(config, folder, node.worker_argv)
        self._tail = Tail(events_file(folder, local_ranks(config)[0]))
        self._kill_at, self._next_upload = None, time.monotonic() + LOG_SECONDS
        self._workers.start()
        bind(generation=generation.n)
        node.state.set("trainer_generation", generation.n)
        node.state.set("trainer_run_active", 1)
        if generation.n > 1:
            node.state.add("trainer_recoveries_total")
        get_logger().info("workers started", node_rank=action.node_rank, members=len(generation.members))

    def _stop(self, reason: StopReason) -> None:
        if self._workers is not None and self._kill_at is None:
            self._workers.ask_to_stop(reason)
            self._kill_at = time.monotonic() + STOP_SECONDS

    def _generation_ended(self, workers: Workers) -> None:
        self._read_events()
        result = workers.result()
        self._workers, self._kill_at = None, None
        self.node.state.set("trainer_run_active", 0)
        get_logger().info("workers ended", code=result.code, reason=result.message, step=self._meter.step)
        uploads.events(self.node, workers)
        uploads.worker_log(self.node, workers)
        if self._leaving:
            saved = result.code in (Exit.DONE, Exit.STOPPED_SAVED)
            self._left(Exit.STOPPED_SAVED if saved else Exit.STOPPED_STALE)
            return
        self._settle(result)
        self._ready_since = time.monotonic()

    def _settle(self, result: ExitReport) -> None:
        if result.code == Exit.DONE:
            self._set(state="finished", exit_code=0)
            return
        hold = self.attempts.again_after(result.code, self._meter.progressed())
        if hold is None:
            self._set(state="failed", exit_code=result.code, message=result.message)
            if result.code in NODE_FAULTS:
                self.node_fault = Exit(result.code)
                self._put_report_quietly()
            return
        self._hold_until = time.monotonic() + hold
        self._set(state="ready", exit_code=result.code, message=result.message)

    def _left(self, code: Exit) -> None:
        self._set(state="leaving", exit_code=int(code))
        self._put_report_quietly()
        self.leave_code = code

    def _conclude(self, action: rules.Conclude) -> None:
        progress = progress_of(self.node.board.events(self.run.name))
        result = RunResult(
            run=self.run.name,
            status=action.status,
            exit_code=action.exit_code,
            message=action.message,
            step=progress.step,
            epochs=progress.epochs,
            first_loss=progress.first_loss,
            last_loss=progress.last_loss,
            eval_loss=progress.eval_loss,
            eval_accuracy=progress.eval_accuracy,
            finished_at=utc_now(),
        )
        if self.node.board.put_result(result):
            get_logger().info("run concluded", **result.model_dump(exclude_none=True, exclude={"run"}))

    def _read_events(self) -> None:
        if self._tail is not None:
            for event in self._tail.read():
                self._meter.take(event)

    def _set(self, **changes: object) -> None:
        self.report = self.report.model_copy(update=changes)

    def _put_report(self) -> None:
        self._set(beat=self.report.beat + 1)
        self.node.board.put_report(self.run.name, self.report)

    def _put_report_quietly(self) -> None:
        try:
            self._put_report()
        except StoreError as error:
            get_logger().warning("report not written", error=str(error))
