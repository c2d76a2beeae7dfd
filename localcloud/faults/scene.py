"""One run under one fault: what an injection may look at and lay hands on, and when it did."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from trainer.contracts import keys
from trainer.contracts.run import Generation

from ..facts import Facts
from ..gateway.control import Rule, clear, set_rules
from ..nodes import control
from ..stack import LocalStack
from ..steps import StepFailed, wait_until
from ..story import state_dir
from .evidence import AgentLine, NodeStop, read_console
from .node import InjectionFailed, LiveNode

WAIT_SECONDS = 240.0


@dataclass
class Scene:
    stack: LocalStack
    facts: Facts
    run: str
    random: random.Random
    say: Callable[[str], None]
    undo: ExitStack = field(
        default_factory=ExitStack
    )  # what the injection has to take back, whatever happens
    injected_at: float | None = None
    healed_at: float | None = None

    # --- who is there

    def node(self, instance_id: str) -> LiveNode:
        return LiveNode(self.stack.local, instance_id)

    def generation(self) -> Generation:
        body = self.facts.get(keys.generation(self.run))
        if body is None:
            raise InjectionFailed(f"run {self.run} has no generation")
        return Generation.from_json(body)

    def members(self) -> list[LiveNode]:
        """Of the generation that runs now; the first one leads."""
        return [self.node(member.instance_id) for member in self.generation().members]

    @property
    def leader(self) -> LiveNode:
        return self.members()[0]

    @property
    def follower(self) -> LiveNode:
        return self.members()[-1]

    def in_service(self) -> list[str]:
        return [id_ for group in self.stack.groups() for id_ in group.in_service]

    @property
    def group(self) -> str:
        """The Auto Scaling group's name."""
        return next(iter(self.stack.outputs()["groups"].values()))

    # --- when

    def mark(self) -> None:
        """Now the fault is there."""
        self.injected_at = time.time()

    def healed(self) -> None:
        """Now it is not any more."""
        self.healed_at = time.time()

    # --- looking

    def step(self) -> int:
        """The newest step that any node's rank 0 has recorded."""
        newest = 0
        for path in self._rank0_events():
            for line in path.read_text(errors="replace").splitlines()[-3:]:
                try:
                    newest = max(newest, int(json.loads(line).get("step") or 0))
                except ValueError:  # it is being written
                    continue
        return newest

    def _rank0_events(self) -> list[Path]:
        """Of every node that was rank 0 in a generation of the run."""
        nodes = (self.stack.local / "nodes").glob("i-*")
        folders = [state_dir(node) / "runs" / self.run for node in nodes]
        return [path for folder in folders for path in folder.glob("gen-*/events-rank0.jsonl")]

    def agent_lines(self) -> list[AgentLine]:
        return [line for lines, _ in self._consoles() for line in lines]

    def node_stops(self) -> list[NodeStop]:
        return [stop for _, stops in self._consoles() for stop in stops]

    def _consoles(self) -> list[tuple[list[AgentLine], list[NodeStop]]]:
        paths = sorted((self.stack.local / "nodes").glob("i-*/console.log"))
        return [read_console(path, path.parent.name) for path in paths]

    # --- waiting

    def wait(self, what: str, holds: Callable[[], bool], seconds: float = WAIT_SECONDS) -> None:
        try:
            wait_until(what, seconds, holds, self.say)
        except StepFailed as fault:
            raise InjectionFailed(str(fault)) from None

    def wait_regrouped(self, seconds: float = WAIT_SECONDS) -> None:
        """Until a generation later than now's has made steps."""
        first = self.generation().n

        def regrouped() -> bool:
            if self.over():
                return True
            return any(
                path.stat().st_size and '"step"' in path.read_text(errors="replace")
                for path in self._rank0_events()
                if int(path.parent.name.removeprefix("gen-")) > first
            )

        self.wait(f"a generation after {first} to train", regrouped, seconds)

    def wait_said(self, words: str, seconds: float = WAIT_SECONDS) -> None:
        """Until an agent's log has a line with these words since the fault."""
        since = self.injected_at or 0.0

        def said() -> bool:
            return (
                any(words in json.dumps(line.fields) for line in self.agent_lines() if line.time >= since)
                or self.over()
            )

        self.wait(f'"{words}" in an agent\'s log', said, seconds)

    def wait_stopped(self, code: int, seconds: float = WAIT_SECONDS) -> None:
        """Until a node ended with this exit code since the fault."""
        since = self.injected_at or 0.0
        self.wait(
            f"a node that ends with {code}",
            lambda: any(stop.code == code and stop.time >= since for stop in self.node_stops()),
            seconds,
        )

    def over(self) -> bool:
        return self.facts.run_result(self.run) is not None

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    # --- acting

    def order(self, kind: str, node: LiveNode, code: str = "", seconds: float = 0.0) -> None:
        status, text = control.give_order(self.stack.local, kind, node.instance_id, code, seconds)
        if status != "done":
            raise InjectionFailed(f"{kind} to {node.instance_id}: {text}")

    def s3_faults(self, *rules: Rule) -> None:
        """From now on until `heal_s3`."""
        folder = self.stack.local / "gateway"
        set_rules(folder, rules)
        self.undo.callback(clear, folder)

    def heal_s3(self) -> None:
        clear(self.stack.local / "gateway")
        self.healed()

    def desired(self, nodes: int) -> None:
        self.facts.autoscaling.set_desired_capacity(
            AutoScalingGroupName=self.group, DesiredCapacity=nodes, HonorCooldown=False
        )
