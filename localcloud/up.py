"""`make up`: the local stack by a real `pulumi up`, two nodes, a sample dataset, one run over both; then the proof.

Exit code 0 only if every promise of the summary holds (`summary.faults`). Anything else is one line with the cause,
and nothing is left running.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from . import daemons, monitoring, release
from .guardian import Guard
from .launch import print_launches
from .stack import LOCAL, STACK, LocalStack, port_free, tools
from .steps import EXIT_FAILED, EXIT_INTERRUPTED, StepFailed, Steps, run_logged, wait_until
from .story import read_launch
from .summary import ScrapeSummary, Summary, faults, print_table
from .toolchain import Failed, cache

RUN = "sample"
DATASET = "shapes@v1"
EXAMPLE = Path("trainer/examples/sample_run.yaml")
DONE_FILE = "summary.json"  # its presence says that an earlier `make up` came to its end
PULUMI_LIMIT_SECONDS = 300.0
NODES_LIMIT_SECONDS = 300.0
RUN_LIMIT_SECONDS = 600.0


class Up:
    def __init__(self, stack: LocalStack, steps: Steps) -> None:
        self.stack = stack
        self.steps = steps
        self.changes: list[str] = []  # what this call did to the world; empty: nothing

    def run(self) -> int:
        endpoint = self.cloud()
        self.declare(endpoint)
        declared = self.nodes()
        prometheus = self.watch(endpoint)
        self.dataset()
        self.train(declared)
        return self.prove(declared, prometheus)

    def cloud(self) -> str:
        with self.steps.phase("cloud", "AWS emulation on loopback, node driver"):
            endpoint = self.stack.start_cloud()
            self.stack.start_nodes(endpoint)
        self.steps.say(f"cloud: {self.stack.nodes_are()}")
        return endpoint

    def declare(self, endpoint: str) -> None:
        with self.steps.phase("stack", "trainer release, then pulumi up with the policy pack"):
            try:
                release.build(
                    release.SOURCE,
                    release.LOCK_FILE,
                    self.stack.root / "dist",
                    release.wanted_abis(),
                    cache(),
                )
            except release.ReleaseError as fault:
                raise StepFailed(str(fault)) from None
            outcome = self.stack.pulumi_up(endpoint)
        counts = {op: n for op, n in outcome.events.changes.items() if op != "same"}
        if counts:
            self.changes.append("stack: " + ", ".join(f"{n} {op}" for op, n in sorted(counts.items())))
        self.steps.say(f"stack: {sum(outcome.events.changes.values())} resources")

    def nodes(self) -> int:
        """Wait until each declared node is in service, which it is only after its self-check; returns how many."""
        declared = sum(group.desired for group in self.stack.groups())
        before = time.monotonic()

        def in_service() -> bool:
            groups = self.stack.groups()
            for group in groups:
                if group.launches_suspended:
                    raise StepFailed(
                        f"group {group.name}: too many nodes failed, launches are suspended: "
                        f"{self.stack.last_boot_fault() or 'no node said why'}"
                    )
            return sum(len(group.in_service) for group in groups) >= declared

        with self.steps.phase("nodes", f"boot, offline install and self-check of {declared} nodes"):
            try:
                wait_until(f"{declared} nodes in service", NODES_LIMIT_SECONDS, in_service, self.steps.say)
            except StepFailed as fault:
                cause = self.stack.last_boot_fault() or f"log: {self.stack.local / 'nodes' / 'driver.log'}"
                raise fault if "suspended" in str(fault) else StepFailed(f"{fault}: {cause}") from None
        if time.monotonic() - before > 2:
            self.changes.append(f"nodes: waited for {declared}")
        return declared

    def watch(self, endpoint: str) -> str | None:
        if self.stack.tools.prometheus is None:
            self.steps.say(
                "monitoring: no Prometheus on this machine, so the nodes are scraped by this command itself"
            )
        with self.steps.phase("monitoring", "scrape settings and alert rules of the cloud stack"):
            return self.stack.start_monitoring(endpoint)

    def dataset(self) -> None:
        name, version = DATASET.split("@")
        facts = self.stack.facts()
        bucket = self.stack.outputs()["datasetBuckets"][name]
        listed = facts.s3.list_objects_v2(Bucket=bucket, Prefix=f"datasets/{name}/{version}/manifest.json")
        if listed.get("KeyCount", 0):
            return
        with self.steps.phase("dataset", f"make {DATASET} and publish it with a researcher's rights"):
            folder = self.stack.local / "sample"
            self.trainer("dataset", "make-sample", str(folder))
            self.trainer("dataset", "publish", str(folder), DATASET)
        self.changes.append(f"dataset: {DATASET} published")

    def train(self, nodes: int) -> None:
        facts = self.stack.facts()
        if facts.run_config(RUN) is None:
            self.trainer(
                "run",
                "start",
                "--run",
                RUN,
                "--config",
                str(self.stack.root / EXAMPLE),
                "--nodes",
                str(nodes),
            )
            self.changes.append(f"run: {RUN} started")
        if facts.run_result(RUN) is None:
            with self.steps.phase("run", f"{RUN} on {nodes} nodes, DDP over gloo"):
                wait_until(
                    f"the end of run {RUN}",
                    RUN_LIMIT_SECONDS,
                    lambda: facts.run_result(RUN) is not None,
                    self.steps.say,
                )
        result = facts.run_result(RUN)
        if result is None or result.status != "finished":
            words = (
                f"{result.status} with exit code {result.exit_code}: {result.message}"
                if result
                else "no result"
            )
            raise StepFailed(f"run {RUN} ended as {words} (logs: {self.stack.local / 'nodes'}/*/console.log)")

    def prove(self, declared: int, prometheus: str | None) -> int:
        facts = self.stack.facts()
        groups = self.stack.groups()
        ids = [instance_id for group in groups for instance_id in group.in_service]
        with self.steps.phase("proof", "hash the checkpoint in the bucket, ask for every node's metrics"):
            checkpoint = facts.checkpoint(RUN)
            up = {"": False}

            def scraped() -> bool:
                nonlocal up
                up = monitoring.targets_up(self.stack.local, ids, prometheus).up
                return all(up.values())

            with contextlib.suppress(StepFailed):  # the summary says how many were scraped
                wait_until("the first scrape of every node", 40, scraped, self.steps.say)
        launches = {id_: read_launch(self.stack.local / "nodes" / id_, RUN) for id_ in ids}
        summary = Summary(
            stack=STACK,
            run=RUN,
            nodes=[
                replace(facts.node(group, id_), launch=launches[id_].seconds())
                for group in groups
                for id_ in group.in_service
            ],
            loss=facts.loss(RUN),
            checkpoint=checkpoint,
            scrape=ScrapeSummary(declared=declared, up=sum(up.values())),
        ).with_seconds(
            {**self.steps.seconds, "total": self.steps.total() + self.steps.seconds.get("setup", 0.0)}
        )
        print_table(summary, self.steps.console)
        print_launches(list(launches.values()), self.steps.console)
        found = faults(summary, declared)
        target = self.stack.file(DONE_FILE)
        if found:
            self.stack.file("failed-summary.json").write_text(summary.to_json())
            raise StepFailed("; ".join(found) + f" (logs: {self.stack.local / 'log'})")
        if self.changes or not target.exists():
            target.write_text(summary.to_json())
        self.write_environment()
        return 0

    def trainer(self, *arguments: str) -> str:
        env = self.stack.environment(self.stack.researcher())
        argv = [sys.executable, "-m", "trainer", *arguments]
        name = "trainer " + " ".join(arguments[:2])
        return run_logged(argv, self.stack.log("trainer.log"), 180, env, self.stack.root, name)

    def write_environment(self) -> None:
        """`.local/env.sh`: after sourcing it, `trainer` in that shell talks to this stack."""
        bin_folder = self.stack.local / "bin"
        bin_folder.mkdir(exist_ok=True)
        script = bin_folder / "trainer"
        path = self.stack.root / "trainer" / "src"
        script.write_text(f"#!/bin/sh\nPYTHONPATH='{path}' exec '{sys.executable}' -m trainer \"$@\"\n")
        script.chmod(0o755)
        lines = [f"export {name}='{value}'" for name, value in sorted(self.stack.researcher().items())]
        lines.append(f"export PATH='{bin_folder}':\"$PATH\"")
        self.stack.file("env.sh").write_text("\n".join(lines) + "\n")


def bring_up(stack: LocalStack, console: Console) -> int:
    """The whole of `make up` for a stack whose lock this process holds."""
    steps = Steps(console)
    if setup := os.environ.get("GPU_TRAINING_SETUP_SECONDS"):
        steps.seconds["setup"] = float(setup)
    standing = stack.endpoint is not None and stack.file(DONE_FILE).exists()
    if standing:
        return _finish(Up(stack, steps), standing=True)
    leavings = stack.end_everything()
    if leavings or any(entry.name != "lock" for entry in stack.local.iterdir()):
        steps.say(
            f"cleared the state of an earlier stack that is not alive any more ({len(leavings)} processes)"
        )
    stack.forget()
    port_free()
    guard = Guard(stack.local, stack_guard_environment(stack))
    try:
        code = _finish(Up(stack, steps), standing=False)
    except BaseException:
        console.print("stopping what was started…")
        guard.fire()
        raise
    guard.release()
    return code


def stack_guard_environment(stack: LocalStack) -> dict[str, str]:
    """The guardian ends all processes that carry the marker, so it must not carry it itself."""
    return {name: value for name, value in stack.environment().items() if name != daemons.MARKER}


def _finish(up: Up, standing: bool) -> int:
    code = up.run()
    if standing and not up.changes:
        up.steps.say("nothing changed: the stack was up already, and everything above was looked at again")
    up.steps.say(
        "next: `source .local/env.sh`, then `trainer run status --run sample`; `make rehearse`; `make down` ends it all"
    )
    return code


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="make up", description=__doc__)
    parser.add_argument("--stack", default=STACK)
    parser.add_argument("--local", type=Path, default=LOCAL, help="the stack's state folder")
    parser.add_argument("--json", action="store_true", help="print summary.json at the end")
    asked = parser.parse_args(argv)
    if asked.stack != STACK:
        print(
            f"make up: brings up the stack {STACK} on this machine; a stack on an account is brought up by "
            f"`pulumi up --stack {asked.stack}` (README: On a real account)",
            file=sys.stderr,
        )
        return 2
    console = Console(stderr=asked.json)
    try:
        stack = LocalStack(tools(), asked.local)
        with stack.alone():
            code = bring_up(stack, console)
            if asked.json:
                print(json.dumps(json.loads(stack.file(DONE_FILE).read_text())))
            return code
    except KeyboardInterrupt:
        print(
            "make up: interrupted; nothing is left running, the next `make up` begins anew", file=sys.stderr
        )
        return EXIT_INTERRUPTED
    except (StepFailed, Failed, daemons.DaemonFailed) as fault:
        print(f"make up: {fault}", file=sys.stderr)
        return EXIT_FAILED
    except subprocess.SubprocessError as fault:
        print(f"make up: {fault}", file=sys.stderr)
        return EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())
