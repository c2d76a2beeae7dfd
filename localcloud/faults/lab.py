"""The laboratory: a local cloud of machine nodes, a run for each fault, its evidence, its verdict."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from rich.console import Console
from trainer.contracts.run import RunResult

from ..guardian import Guard
from ..stack import LocalStack, port_free
from ..steps import StepFailed, Steps, wait_until
from ..up import Up, stack_guard_environment
from .catalog import Fault
from .evidence import RunEvidence, collect
from .node import InjectionFailed
from .report import FaultRecord
from .scene import Scene
from .timing import timing
from .verdict import Unharmed, Verdict, judge

CONFIG = Path("trainer/examples/fault_run.yaml")
RUN_LIMIT_SECONDS = 300.0
STOP_LIMIT_SECONDS = 150.0  # the agent gives hung workers 100
SERVICE_LIMIT_SECONDS = 180.0
LARGEST_GROUP = 6  # while replacements start before what they replace is gone
NOTICE_SECONDS = 120.0


def lab_stack(stack: LocalStack, driver: str, time_factor: float) -> LocalStack:
    """The stack with nodes whose waits are shortened; what AWS dictates and tests need not wait for."""
    stack.driver = driver
    stack.spot_notice_seconds = NOTICE_SECONDS * time_factor
    stack.node_environment = {"TRAINER_TIME_FACTOR": f"{time_factor:g}"}
    return stack


@dataclass
class Lab:
    stack: LocalStack
    console: Console
    seed: int
    time_factor: float
    steps: Steps = field(init=False)
    reference: RunResult | None = None
    _number: int = 0
    _guard: Guard | None = None

    def __post_init__(self) -> None:
        self.steps = Steps(self.console)

    def __enter__(self) -> Lab:
        self.stack.end_everything()
        self.stack.forget()
        port_free()
        self._guard = Guard(self.stack.local, stack_guard_environment(self.stack))
        try:
            up = Up(self.stack, self.steps)
            endpoint = up.cloud()
            up.declare(endpoint)
            facts = self.stack.facts()
            for group in self.stack.outputs()["groups"].values():
                facts.autoscaling.update_auto_scaling_group(AutoScalingGroupName=group, MaxSize=LARGEST_GROUP)
            up.nodes()
            up.dataset()
        except BaseException:
            self._guard.fire()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._guard is not None:
            self._guard.fire()  # ends everything that the stack started

    def run(self, fault: Fault) -> FaultRecord:
        """Never raises for what the fault does; a laboratory that could not inject it says so in the verdict."""
        began = time.monotonic()
        self._number += 1
        name = f"f{self._number:02d}-{fault.name}"[:60]
        scene = Scene(
            self.stack, self.stack.facts(), name, random.Random(f"{self.seed}-{fault.name}"), self.steps.say
        )
        trouble: list[str] = []
        self.steps.say(f"{fault.name}: {fault.description}")
        try:
            self.whole(scene, fault.nodes)
            self._start(name, fault.nodes)
            scene.wait(f"step {fault.at_step}", lambda: scene.step() >= fault.at_step, 120)
            fault.inject(scene)
            scene.wait("the end of the run", scene.over, RUN_LIMIT_SECONDS)
        except (InjectionFailed, StepFailed) as error:
            trouble.append(f"laboratory: {error}")
        if trouble:
            self._stop(name)
        try:
            scene.undo.close()
        except InjectionFailed as error:
            self.steps.say(f"{fault.name}: could not be taken back: {error}")
        evidence = self._evidence(scene)
        verdict = judge(evidence, fault.expectation, self.reference)
        if trouble:
            verdict = Verdict(False, (*trouble, *verdict.faults), verdict.outcome)
        measured = timing(evidence, scene.injected_at or time.time(), scene.healed_at)
        seconds = time.monotonic() - began
        word = "passed" if verdict.passed else "FAILED: " + "; ".join(verdict.faults)
        self.steps.say(f"{fault.name}: {word} ({seconds:.0f} s)")
        return FaultRecord(
            name=fault.name, group=fault.group, description=fault.description, driver=self.stack.driver,
            time_factor=self.time_factor, verdict=verdict, timing=measured, seconds=seconds,
        )  # fmt: skip

    def run_reference(self, nodes: int) -> FaultRecord:
        """The same run without a fault: what all others are measured by."""
        nothing = Fault(
            "no-fault",
            "reference",
            "nothing is done to the run",
            lambda scene: scene.mark(),
            Unharmed(),
            nodes,
        )
        record = self.run(nothing)
        self.reference = self.stack.facts().run_result(f"f{self._number:02d}-no-fault")
        return record

    def whole(self, scene: Scene, nodes: int) -> None:
        """As many nodes in service as the run wants, and launches that go on."""
        facts, group = scene.facts, scene.group
        facts.autoscaling.resume_processes(AutoScalingGroupName=group)
        scene.desired(nodes)

        def there() -> bool:
            found = scene.in_service()
            alive = [id_ for id_ in found if scene.node(id_).record.get("state") == "running"]
            answer = facts.autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
            return len(alive) == len(found) == nodes == len(answer["AutoScalingGroups"][0]["Instances"])

        wait_until(f"{nodes} nodes in service", SERVICE_LIMIT_SECONDS, there, self.steps.say)

    def _start(self, run: str, nodes: int) -> None:
        config = str(self.stack.root / CONFIG)
        Up(self.stack, self.steps).trainer(
            "run", "start", "--run", run, "--config", config, "--nodes", str(nodes)
        )

    def _stop(self, run: str) -> None:
        """A run that did not end must not be in the next one's way."""
        try:
            Up(self.stack, self.steps).trainer("run", "stop", "--run", run)
            facts = self.stack.facts()
            wait_until(
                f"{run} to stop",
                STOP_LIMIT_SECONDS,
                lambda: facts.run_result(run) is not None,
                self.steps.say,
            )
        except StepFailed as fault:
            self.steps.say(f"{run}: {fault}")

    def _evidence(self, scene: Scene) -> RunEvidence:
        """Of this fault alone: consoles also hold what earlier ones did to the nodes."""
        found = collect(self.stack.local, scene.run, scene.facts)
        since = scene.injected_at or 0.0
        stops = tuple(stop for stop in found.node_stops if stop.time >= since)
        return replace(found, node_stops=stops)
