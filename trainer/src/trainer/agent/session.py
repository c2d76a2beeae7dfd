"""One run on this node: prepare, be a member, train generation after generation, until the run has its result."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field, replace

from ..contracts.run import Generation, MemberReport, RunConfig, RunResult
from ..contracts.worker import ExitReport, StopReason, WorkerConfig
from ..data.sync import drop_streams
from ..errors import Fault, StoreError
from ..exit_codes import Exit
from ..obs.logs import bind, get_logger, hide
from . import generation as rules
from .board import utc_now
from .cost import all_usage, run_cost, show_cost
from .ending import Ending
from .events import Meter
from .hours import trained_seconds
from .membership import Attempts, Observer
from .node import Node, free_port
from .own_report import OwnReport
from .peers import Peers
from .prepare import Preparation, data_dir
from .secret_values import Secrets
from .standby import Standby
from .supervisor import standby_environment
from .training import Training
from .uploads import Logs

SOON_SECONDS = 1.0  # between looks at the run while a generation is about to begin
ABOUT_TO_BEGIN_SECONDS = 30.0  # so long after this node became ready
LOG_SECONDS = 10.0  # how often the run's events are uploaded while it trains

# Faults of this node alone: it leaves the run, the agent ends with the code, the run goes on with a replacement.
NODE_FAULTS = frozenset({Exit.DEVICE, Exit.REBOOT, Exit.RESET, Exit.PERFORMANCE, Exit.DRIVER})


@dataclass
class Session:
    node: Node
    run: RunConfig
    own: OwnReport
    peers: Peers
    attempts: Attempts = field(default_factory=Attempts)
    over: bool = False
    node_fault: Exit | None = None
    leave_code: Exit | None = None  # set when a stop for a notice or SIGTERM is complete
    _used_up: str | None = None  # why the workers were stopped for good: maxRunHours are over
    _result: RunResult | None = None  # the run's, as S3 has it
    _trained: float = 0.0  # seconds of the run in all generations, as far as this node knows
    _trained_before: float = 0.0  # the same at the start of the generation that runs here
    _ending: Ending = field(init=False)
    _observer: Observer = field(init=False)
    _leaving: StopReason | None = None
    _training: Training | None = None
    _standby: Standby = field(init=False)
    _meter: Meter = field(init=False)
    _preparation: Preparation | None = None
    _secrets: Secrets = field(default_factory=Secrets)
    _hold_until: float = 0.0
    _ready_since: float | None = None
    _next_upload: float = 0.0
    _unsent: list[Logs] = field(default_factory=list)  # what S3 did not take yet
    _last_wait: str = ""

    def __post_init__(self) -> None:
        self._meter = Meter(self.node.state)
        self._observer = Observer(self.node.pace)
        self._ending = Ending(self.node, self.run)
        self._standby = Standby(self.node.standby_argv)

    @classmethod
    def open(cls, node: Node, run: RunConfig, peers: Peers) -> Session:
        bind(run=run.name)
        node.state.clear("trainer_run_info")
        node.state.set("trainer_run_info", 1, run=run.name)
        node.state.set("trainer_run_active", 0)
        node.state.set("trainer_checkpoint_period_seconds", run.training.checkpoint.every_seconds)
        return cls(node, run, OwnReport.begin(node, run.name, peers.port), peers)

    # Everything below is called from the agent's loop, several times a second (`tick`) or once a poll (`poll`).

    @property
    def done(self) -> bool:
        return self.over or self.node_fault is not None or self.leave_code is not None

    @property
    def released(self) -> bool:
        """The run's result lets its nodes go, whatever `on_finish` says."""
        return self._result is not None and self._result.released

    @property
    def busy(self) -> bool:
        """This node trains, or gets ready to."""
        return self._training is not None or self._preparation is not None

    @property
    def poll_seconds(self) -> float:
        """Until the next poll: sooner where all wait for each other's reports."""
        ready = self._ready_since if self._training is None else None
        soon = ready is not None and time.monotonic() - ready < ABOUT_TO_BEGIN_SECONDS
        return min(SOON_SECONDS, self.node.poll_seconds) if soon else self.node.poll_seconds

    def tick(self) -> bool:
        """Follow the workers; True when they have just ended, so that a poll is due at once."""
        training = self._training
        if training is None:
            if self._leaving:
                self._left(Exit.STOPPED_SAVED)
            return False
        if training.tick():
            self._fence(training)
            if training.settled and not training.stopping:
                self._standby.prepare(standby_environment(training.config, os.environ))
            return False
        self._generation_ended(training)
        return True

    def leave(self, reason: StopReason) -> None:
        """Stop at a common step, save, and leave the run; `leave_code` tells when that is done."""
        if self._leaving is None:
            self._leaving = reason
            if self._training is not None:
                self._training.stop(reason)

    def save(self) -> None:
        """All ranks save at the next step and go on; nothing to do where none run."""
        if self._training is not None:
            self._training.workers.ask_to_save()

    def poll(self, stop_requested: bool) -> None:
        """Beat, look, decide, act. Raises StoreError when S3 is out of reach: the next poll tries again."""
        if not self._leaving and not self._prepared(stop_requested):
            return
        node, run = self.node, self.run.name
        if self._training is not None:
            self.own.set(trained_seconds=self._trained_before + self._training.seconds)
        self.own.put()
        if self._leaving:
            return
        self._upload()
        reports = node.board.reports(run) | {node.instance_id: self.own.now}
        show_cost(run_cost(all_usage(reports, self.own.earlier)), node.state)
        life_cycles = node.lifecycle.life_cycles(reports)
        if life_cycles is None:  # no answer: nobody is given up for it
            life_cycles = dict.fromkeys(reports, "InService")
        generation, etag = node.board.generation(run)
        view = self._view(stop_requested, generation, reports, life_cycles)
        action = rules.decide(view)
        if isinstance(action, rules.Publish):
            published = self._publish(action, reports, etag)
            action = rules.decide(replace(view, generation=published)) if published else None
        if action is not None:
            self._act(action, reports)
        if self._training is not None and time.monotonic() >= self._next_upload:
            self._training.logs.events()
            self._next_upload = time.monotonic() + LOG_SECONDS

    def _view(
        self,
        stop_requested: bool,
        generation: Generation | None,
        reports: dict[str, MemberReport],
        life_cycles: dict[str, str],
    ) -> rules.View:
        self._result = self.node.board.result(self.run.name)
        self._trained = max(self._trained, trained_seconds(reports, generation, self.own.earlier))
        hours = self.node.document.max_run_hours
        now, me = time.monotonic(), self.node.instance_id
        peers = self._observer.look(me, reports, life_cycles, now)
        there = {
            id_: peer.report
            for id_, peer in peers.items()
            if id_ != me and peer.fresh and peer.report.state not in ("leaving", "failed")
        }
        self.own.set(unreachable=self.peers.look(there))  # told to the others with the next beat
        return rules.View(
            me=me,
            run=self.run,
            stop_requested=stop_requested,
            generation=generation,
            peers=peers,
            waited_seconds=now - self._ready_since if self._ready_since is not None else 0.0,
            hold_seconds=max(0.0, self._hold_until - now),
            over=self._result is not None,
            ran_seconds=self._training.seconds if self._training is not None else 0.0,
            progressed=self._meter.progressed(),
            reached=self.peers.reached(),
            trained_seconds=self._trained,
            most_seconds=hours * 3600 if hours is not None else None,
            pace=self.node.pace,
        )

    def close(self) -> None:
        """End whatever still runs."""
        if self._training is not None:
            self._training.workers.kill()
            self._training = None
        if self._preparation is not None:
            self._preparation.give_up()
        self._standby.close()
        drop_streams(data_dir(self.node.document, self.node.state_dir))
        self.node.state.clear("trainer_run_cost_usd")
        self.peers.look({})

    def worker_pids(self) -> set[int]:
        training = self._training
        return training.workers.pids() if training is not None else set()

    def refresh(self) -> None:
        """Ages, at the moment of a scrape."""
        saved = self._meter.checkpoint_at
        age = time.time() - saved if saved is not None else None
        self.node.state.set("trainer_checkpoint_age_seconds", age)

    def _act(self, action: rules.Action, reports: dict[str, MemberReport]) -> None:
        log = get_logger()
        if isinstance(action, rules.Wait):
            if action.why != self._last_wait:
                log.info("waiting", why=action.why)
            self._last_wait = action.why
        elif isinstance(action, rules.Start):
            self._start(action)
        elif isinstance(action, rules.Stop):
            self._stop(action)
        elif isinstance(action, rules.Conclude):
            self._ending.write(action, reports, self.own.usage.read())
        elif isinstance(action, rules.Leave):
            log.info("the run is over")
            # S3 may have taken this node's result although its answer got lost.
            self._ending.tell(self._result)
            self.over = True

    def _prepared(self, stop_requested: bool) -> bool:
        """True when this node is a member. Dataset and user package come in a thread; polls go on meanwhile."""
        if self._ready_since is not None or stop_requested:
            return True
        node = self.node
        if self._preparation is None:
            self._preparation = Preparation(node.store, node.document, self.run, node.state_dir)
        try:
            secrets = self._preparation.look()
            if secrets is None:
                return False
            self._secrets = secrets
            hide(secrets.redact)
        except Exception as error:
            code = error.exit_code if isinstance(error, Fault) else Exit.BUG
            get_logger().error("preparation failed", error=str(error), code=int(code))
            self.own.set(state="failed", exit_code=int(code), message=str(error))
        self._preparation = None
        self._ready_since = time.monotonic()
        return True

    def _publish(
        self, action: rules.Publish, reports: dict[str, MemberReport], etag: str | None
    ) -> Generation | None:
        """The generation, or None where another one wrote first."""
        generation = Generation(
            n=action.n,
            members=[reports[id_].member for id_ in action.members],
            master_address=self.node.address,  # the publisher is rank 0
            master_port=free_port(self.node.document.training_port + 1),  # the first is the agents' own
            versions=self.node.versions,
            published_at=utc_now(),
            trained_seconds=self._trained,
        )
        if self.node.board.publish(self.run.name, generation, etag):
            get_logger().info("generation published", n=action.n, members=list(action.members))
            return generation
        get_logger().info("another leader was first", n=action.n)
        return None

    def _start(self, action: rules.Start) -> None:
        node, generation = self.node, action.generation
        config = WorkerConfig(
            run=self.run,
            generation=generation,
            node_rank=action.node_rank,
            document=node.document,
            state_dir=str(node.state_dir),
            data_dir=str(data_dir(node.document, node.state_dir)),
            device="cuda" if node.document.promise.accelerator == "nvidia" else "cpu",
        )
        # First the word that this node runs n, then the deed: a crash in between leads to n+1, never to n twice.
        before = self.own.now
        self.own.set(state="running", generation=generation.n, exit_code=None, message=None)
        try:
            self.own.put()
        except StoreError:
            self.own.now = before  # nothing runs, so nothing must look as if
            raise
        self._trained_before = max(self._trained, generation.trained_seconds)
        self._training = Training(node, config, self._meter, self._secrets, self._standby)
        self._next_upload = time.monotonic() + LOG_SECONDS
        self._training.start()

    def _stop(self, action: rules.Stop) -> None:
        training = self._training
        if training is None:
            return
        if not training.stopping:
            get_logger().warning("stopping workers", why=action.why, save=action.save)
        if action.reason == "limit":
            self._used_up = action.why
        if action.save:
            training.stop(action.reason)
        else:
            training.end(action.why)

    def _fence(self, training: Training) -> None:
        """Without S3 this node's lease runs out for the others: they go on without it, so it must not go on either."""
        silent = time.monotonic() - (self.own.written_at or training.began)
        if silent > self.node.pace.lease_seconds:
            why = f"S3 out of reach for {silent:.0f} s: others count this node as lost"
            get_logger().error("stopping workers", why=why, save=False)
            training.end(why)

    def _generation_ended(self, training: Training) -> None:
        result = training.result()
        self.own.set(trained_seconds=self._trained_before + training.seconds)
        self._training = None
        self._upload(training.logs)
        if self._leaving:
            saved = result.code in (Exit.DONE, Exit.STOPPED_SAVED)
            self._left(Exit.STOPPED_SAVED if saved else Exit.STOPPED_STALE)
            return
        self._settle(result)
        self._ready_since = time.monotonic()

    def _upload(self, *ended: Logs) -> None:
        self._unsent = [logs for logs in (*self._unsent, *ended) if not (logs.events() and logs.worker_log())]

    def _settle(self, result: ExitReport) -> None:
        if result.code == Exit.DONE:
            self.own.set(state="finished", exit_code=0)
            return
        if self._used_up and result.code in (Exit.STOPPED_SAVED, Exit.STOPPED_STALE):
            self.own.set(state="finished", exit_code=result.code, message=self._used_up)
            return
        hold = self.attempts.again_after(result.code, self._meter.progressed())
        if hold is None:
            self.own.set(state="failed", exit_code=result.code, message=result.message)
            if result.code in NODE_FAULTS:
                self.node_fault = Exit(result.code)
                self.own.put_quietly()
            return
        self._hold_until = time.monotonic() + hold
        self.own.set(state="ready", exit_code=result.code, message=result.message)

    def _left(self, code: Exit) -> None:
        self.own.set(state="leaving", exit_code=int(code))
        self.own.put_quietly()
        self.leave_code = code
