"""The live local stack: where its parts lie, how they are started, asked and ended.

Everything it starts carries the path of `.local` in its environment, so that a later command finds all of it; all
state is in `.local/`, apart from the emulated cloud's, which is in memory: a stack whose emulation died is gone.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from . import daemons, monitoring
from .engine.pulumi import Engine, Outcome
from .facts import Facts, GroupState
from .steps import StepFailed
from .toolchain import ROOT, Failed, Paths

STACK = "local"
LOCAL = ROOT / ".local"
LOCK_FILE = "lock"
DRIVER_VARIABLE = "GPU_TRAINING_NODES"  # what nodes are made of: auto | machine | process
METRICS_PORT = 9400
PROBE_ADDRESS = "127.255.255.253"  # no node has it: who holds a port here holds it on every address


@dataclass
class LocalStack:
    """`root` is the checkout, `local` its ignored state folder."""

    tools: Paths
    local: Path = LOCAL
    root: Path = ROOT
    spot_notice_seconds: float = 120.0  # from notice to termination; EC2's own two minutes
    driver: str = field(default_factory=lambda: os.environ.get(DRIVER_VARIABLE) or "auto")
    node_environment: Mapping[str, str] = field(default_factory=dict)  # settings of a test bed, TRAINER_*
    _outputs: dict[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.local = self.local.resolve()  # the engine works in a folder of its own

    @cached_property
    def region(self) -> str:
        text = (self.root / f"Pulumi.{STACK}.yaml").read_text()
        return str(yaml.safe_load(text)["config"]["gpu-training:region"])

    def file(self, name: str) -> Path:
        return self.local / name

    def log(self, name: str) -> Path:
        return self.local / "log" / name

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One command at a time works on a `.local`; StepFailed names who holds it."""
        self.local.mkdir(parents=True, exist_ok=True)
        path = self.file(LOCK_FILE)
        with path.open("a+") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                held.seek(0)
                who = held.read().strip() or "another command"
                raise StepFailed(
                    f"{who} works on {self.local}; wait for it, or end it, then try again"
                ) from None
            held.truncate(0)
            held.write(f"process {os.getpid()}")
            held.flush()
            yield

    # --- daemons

    @property
    def endpoint(self) -> str | None:
        """The emulated cloud's address; None when it does not run."""
        if daemons.running(self.local, "aws") is None:
            return None
        try:
            return str(json.loads((self.local / "aws" / "endpoint.json").read_text())["endpoint"])
        except (OSError, ValueError, KeyError):
            return None

    def environment(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of what the stack starts: nothing of the user's AWS or Python settings."""
        foreign = ("AWS_", "PULUMI_", "PYTHON", "VIRTUAL_ENV", "TRAINER_")
        env = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env["PYTHONPATH"] = os.pathsep.join([str(self.root), str(self.root / "trainer" / "src")])
        env["PYTHONUNBUFFERED"] = "1"
        env[daemons.MARKER] = str(self.local.resolve())
        return {**env, **(more or {})}

    def researcher(self) -> dict[str, str]:
        """What a person needs to talk to this stack with `trainer`: an endpoint, any credentials, one bucket."""
        endpoint = self.endpoint
        if endpoint is None:
            raise StepFailed("the local cloud does not run; `make up` brings it up")
        return {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": self.region,
            "AWS_ACCESS_KEY_ID": "local",
            "AWS_SECRET_ACCESS_KEY": "local",
            "TRAINER_ARTIFACTS_BUCKET": str(self.outputs()["artifactsBucket"]),
        }

    def start_cloud(self) -> str:
        command = [sys.executable, "-m", "localcloud.aws", "--port", "0", "--state", str(self.local / "aws")]
        ready = (self.local / "aws" / "endpoint.json").exists
        daemons.start(self.local, "aws", command, ready, 60, self.environment())
        endpoint = self.endpoint
        if endpoint is None:
            raise StepFailed(f"the AWS emulation gave no address (log: {self.log('aws.log')})")
        return endpoint

    def start_nodes(self, endpoint: str) -> None:
        command = [sys.executable, "-m", "localcloud.nodes", "--endpoint", endpoint]
        command += ["--state", str(self.local), "--image-dir", str(self.tools.image_dir)]
        command += ["--metadata-mock", str(self.tools.metadata_mock), "--region", self.region]
        command += ["--spot-notice-seconds", str(self.spot_notice_seconds), "--driver", self.driver]
        ready = (self.local / "nodes" / "driver.ready").exists
        env = self.environment({"TRAINER_POLL_SECONDS": "0.5", **self.node_environment})
        daemons.start(self.local, "nodes", command, ready, 60, env)

    def nodes_are(self) -> str:
        """What nodes are made of and why, in the driver's own words; empty where it has not said it."""
        try:
            said = json.loads(self.log("nodes.log").read_text().splitlines()[-1])
        except (OSError, ValueError, IndexError):
            return ""
        return f"{said['driver']} nodes ({said['why']})"

    def start_monitoring(self, endpoint: str) -> str | None:
        """Prometheus' URL; None where the machine has none."""
        return monitoring.start(
            self.local,
            prometheus=self.tools.prometheus,
            alertmanager=self.tools.alertmanager,
            region=self.region,
            auto_scaling_groups=list(self.outputs()["groups"].values()),
            ec2_endpoint=endpoint,
            metrics_port=METRICS_PORT,
        )

    # --- the engine

    def engine(self, endpoint: str | None) -> Engine:
        return Engine(
            self.tools,
            STACK,
            self.local / "pulumi",
            "local",
            endpoint=endpoint,
            local_root=self.local,
            extra_env={daemons.MARKER: str(self.local.resolve())},
        )

    def pulumi_up(self, endpoint: str) -> Outcome:
        outcome = self.engine(endpoint).up()
        if not outcome.ok:
            raise StepFailed(
                f"pulumi up failed: {_cause(outcome)} (log: {self.local / 'pulumi' / 'pulumi.log'})"
            )
        self._outputs = dict(outcome.events.outputs)
        self.file("outputs.json").write_text(json.dumps(self._outputs, indent=2) + "\n")
        return outcome

    def outputs(self) -> dict[str, Any]:
        if not self._outputs:
            try:
                self._outputs = json.loads(self.file("outputs.json").read_text())
            except (OSError, ValueError):
                raise StepFailed("there is no local stack; `make up` brings one up") from None
        return self._outputs

    # --- looking

    def facts(self) -> Facts:
        endpoint = self.endpoint
        if endpoint is None:
            raise StepFailed("the local cloud does not run; `make up` brings it up")
        return Facts(endpoint, self.region, str(self.outputs()["artifactsBucket"]))

    def groups(self) -> list[GroupState]:
        facts = self.facts()
        return [facts.group(name, asg) for name, asg in sorted(self.outputs()["groups"].items())]

    def last_boot_fault(self) -> str | None:
        """The newest console line in which a node's bootstrap or self-check said why it failed."""
        consoles = (self.local / "nodes").glob("*/console.log")
        for console in sorted(consoles, key=lambda path: path.stat().st_mtime, reverse=True):
            for line in reversed(console.read_text(errors="replace").splitlines()):
                if "FAILED" in line:
                    return f"{line.strip()} (log: {console})"
        return None

    # --- ending

    def end_everything(self) -> list[str]:
        return daemons.end_leavings(self.local)

    def forget(self) -> None:
        """Remove all state, keeping the lock that this command holds."""
        for entry in list(self.local.iterdir()) if self.local.exists() else []:
            if entry.name != LOCK_FILE:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()


def port_free() -> None:
    """Nodes serve metrics on a fixed port of their own loopback addresses; what is bound to that port on every address
    is in their way. Raises StepFailed.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((PROBE_ADDRESS, METRICS_PORT))
        except OSError:
            raise StepFailed(
                f"port {METRICS_PORT} is in use on this machine, and the nodes serve their metrics on it; "
                f"`ss -ltnp 'sport = :{METRICS_PORT}'` shows by whom"
            ) from None


def tools() -> Paths:
    from .toolchain import paths

    try:
        return paths()
    except Failed as fault:
        raise StepFailed(str(fault)) from None


def _cause(outcome: Outcome) -> str:
    if outcome.events.errors:
        return " ".join(outcome.events.errors[0].split())
    for violation in outcome.events.violations:
        if violation.level == "mandatory":
            return f"policy {violation.policy}: {violation.message}"
    lines = [line.strip() for line in outcome.text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"
