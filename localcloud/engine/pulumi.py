"""The Pulumi CLI, run so that nothing of the user's machine reaches it and nothing of it reaches the machine.

Its home, backend and project file lie in one private work folder; so do the executables of the stand-ins, which
the run's own project file names: they are on no PATH at all.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from localcloud.toolchain import ROOT, Failed, Paths
from localcloud.toolchain.running import bound

from .events import Events
from .stack_file import without_secrets

Mode = Literal["preview", "local"]
STANDINS = ("aws", "kubernetes")
INTERRUPT_GRACE_SECONDS = 20.0
LOCK_LIMIT_SECONDS = 60.0
# Variables that would make a run depend on who starts it.
FOREIGN = (
    "AWS_",
    "PULUMI_",
    "KUBE",
    "PYTHON",
    "VIRTUAL_ENV",
    "UV_",
    "GPU_TRAINING_LOCAL_",
    "GPU_TRAINING_STANDIN",
)


@dataclass(frozen=True)
class Outcome:
    """How a command of the CLI ended: its exit code, all that it printed, and what the engine did."""

    code: int
    text: str
    events: Events

    @property
    def ok(self) -> bool:
        return self.code == 0


@dataclass(frozen=True)
class Engine:
    """One stack of one project in one work folder.

    `mode` is `preview` (any stack; nothing is created) or `local` (realised against the AWS emulation at
    `endpoint`). In local mode the work folder must lie below `local_root`, or the stand-in provider refuses.
    """

    tools: Paths
    stack: str
    work: Path
    mode: Mode
    project: Path = ROOT
    stack_file: Path | None = None  # none: the project's Pulumi.<stack>.yaml
    policy_pack: Path | None = ROOT / "policies"
    endpoint: str | None = None
    local_root: Path | None = None  # none: the work folder
    python: Path = Path(sys.executable)  # runs the program, the policy pack and the stand-ins
    extra_env: Mapping[str, str] = field(default_factory=dict)
    limit_seconds: float = 600.0
    show: bool = False  # the CLI's output goes to standard output too, as it comes

    @property
    def log(self) -> Path:
        return self.work / "pulumi.log"

    @property
    def backend(self) -> Path:
        return self.work / "backend"

    def preview(self, diff: bool = False, as_json: bool = False, expect_no_changes: bool = False) -> Outcome:
        """What an `up` would do, judged by the policy pack. Not ok: a fault of the program, a policy violated."""
        options = ["--diff"] if diff else []
        options += ["--json"] if as_json else []
        options += ["--expect-no-changes"] if expect_no_changes else []
        return self._operation("preview", *options, *self._policies())

    def up(self, expect_no_changes: bool = False) -> Outcome:
        options = ["--expect-no-changes"] if expect_no_changes else []
        return self._operation("up", "--yes", "--skip-preview", *options, *self._policies())

    def destroy(self) -> Outcome:
        return self._operation("destroy", "--yes", "--skip-preview")

    def outputs(self) -> dict[str, Any]:
        """The stack's outputs. Raises Failed where there is no such stack."""
        return self._json("stack", "output", "--json", "--show-secrets")

    def stack_export(self) -> dict[str, Any]:
        """The stack's whole state, as the CLI exports it."""
        return self._json("stack", "export")

    def _policies(self) -> list[str]:
        return ["--policy-pack", str(self.policy_pack)] if self.policy_pack else []

    def _operation(self, name: str, *options: str) -> Outcome:
        with self._alone():
            self._write_project()
            self._select_stack()
            event_log = self.work / "events.jsonl"
            event_log.unlink(missing_ok=True)
            # As JSON, standard output is for a program: what is said beside it goes to the log.
            apart = "--json" in options
            code, text = self._run(name, *options, "--event-log", str(event_log), show=self.show, apart=apart)
            return Outcome(code, text, Events.read(event_log))

    def _json(self, *arguments: str) -> dict[str, Any]:
        with self._alone():
            self._write_project()
            code, text = self._run(*arguments, "--stack", self.stack, apart=True)
        if code != 0:
            cause = _cause(self.log.read_text(errors="replace"))
            raise Failed(f"`pulumi {' '.join(arguments[:2])}` failed: {cause}; log: {self.log}")
        return json.loads(text)

    def _select_stack(self) -> None:
        # The stack's record is looked at directly: it saves a second for each call of the CLI.
        name = yaml.safe_load((self.project / "Pulumi.yaml").read_text())["name"]
        if (self.backend / ".pulumi" / "stacks" / name / f"{self.stack}.json").exists():
            return
        code, text = self._run("stack", "init", self.stack)
        if code != 0:
            raise Failed(f"the stack {self.stack} cannot be made: {_cause(text)}; log: {self.log}")

    def _run(self, *arguments: str, show: bool = False, apart: bool = False) -> tuple[int, str]:
        """Run the CLI to its end or its limit; gives its exit code and output, `apart` from standard error."""
        color = "always" if show and sys.stdout.isatty() else "never"
        command = [str(self.tools.pulumi), *arguments, "--non-interactive", "--color", color]
        if arguments[:2] != ("stack", "init") and "--stack" not in arguments:
            command += ["--stack", self.stack]
        lines: list[str] = []
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ pulumi {' '.join(arguments)}\n")
            log.flush()
            process = subprocess.Popen(
                bound(command),
                cwd=self.work / "project",
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log if apart else subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            late = threading.Event()
            timer = threading.Timer(self.limit_seconds, lambda: (late.set(), _end(process)))
            timer.start()
            try:
                assert process.stdout is not None
                for line in process.stdout:
                    lines.append(line)
                    log.write(line)
                    log.flush()
                    if show:
                        print(line, end="", flush=True)
                code = process.wait()
            finally:
                timer.cancel()
                _end(process)
        if late.is_set():
            raise Failed(
                f"`pulumi {arguments[0]}` did not end within {self.limit_seconds:.0f} s: "
                f"{_cause(''.join(lines))}; log: {self.log}"
            )
        return code, "".join(lines)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the work folder; the kernel frees it with this process, so that a backend's lock is a stale one."""
        self.work.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.work / "engine.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        try:
            deadline = time.monotonic() + LOCK_LIMIT_SECONDS
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise Failed(
                            f"another run has used {self.work} for {LOCK_LIMIT_SECONDS:.0f} s"
                        ) from None
                    time.sleep(0.2)
            shutil.rmtree(self.backend / ".pulumi" / "locks", ignore_errors=True)
            yield
        finally:
            os.close(descriptor)

    def _write_project(self) -> None:
        """A project folder of this run: it points to the program, and its stack file carries no secrets."""
        folder = self.work / "project"
        for made in (folder, self.backend, self.work / "home", self.work / "plugins"):
            made.mkdir(parents=True, exist_ok=True)
        project = yaml.load((self.project / "Pulumi.yaml").read_text(), Loader=_Yaml12)  # noqa: S506 - a SafeLoader
        project["main"] = str(self.project)
        # For the CLI's own host; the stand-in uses the interpreter it runs in.
        project["runtime"] = {
            "name": "python",
            "options": {"toolchain": "pip", "virtualenv": str(self.python.parent.parent)},
        }
        project["plugins"] = self._write_plugins()
        (folder / "Pulumi.yaml").write_text(json.dumps(project, indent=2, default=str))
        source = self.stack_file or self.project / f"Pulumi.{self.stack}.yaml"
        if not source.exists():
            raise Failed(f"there is no stack {self.stack}: {source} does not exist")
        try:
            (folder / f"Pulumi.{self.stack}.yaml").write_text(without_secrets(source.read_text()))
        except yaml.YAMLError as fault:
            raise Failed(f"{source} is not YAML: {' '.join(str(fault).split())}") from None

    def _write_plugins(self) -> dict[str, list[dict[str, str]]]:
        """The stand-ins' executables; gives the project file's section that names them, before PATH and cache."""
        folder = self.work / "plugins"
        commands = {f"pulumi-resource-{name}": f"-m localcloud.provider.{name}" for name in STANDINS}
        section = {"providers": [{"name": name, "path": str(folder)} for name in STANDINS]}
        if self.tools.language_host is None:
            host = f"-m localcloud.engine.language_host --executor '{self.tools.language_exec}'"
            commands["pulumi-language-python"] = host
            section["languages"] = [{"name": "python", "path": str(folder)}]
        for name, command in commands.items():
            path = folder / name
            path.write_text(f"#!/bin/sh\nPYTHONPATH='{ROOT}' exec '{self.python}' {command} \"$@\"\n")
            path.chmod(0o755)
        return section

    def _environment(self) -> dict[str, str]:
        env = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        env |= {
            "PULUMI_HOME": str(self.work / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.backend}",
            "PULUMI_CONFIG_PASSPHRASE": "the secrets of this backend are placeholders",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "PULUMI_SKIP_CONFIRMATIONS": "true",
            "PULUMI_ERROR_OUTPUT_STRING": "true",
            "PULUMI_DEBUG_COMMANDS": "true",  # makes --event-log known
            "PULUMI_PYTHON_CMD": str(self.python),
            "GPU_TRAINING_STANDIN_MODE": self.mode,
            "GPU_TRAINING_LOCAL_ROOT": str(self.local_root or self.work),
        }
        if self.mode == "preview":
            # The engine writes its whole state after each resource, though a preview leaves none: most of its own
            # time with many groups. The switch is among its experiments.
            env |= {"PULUMI_EXPERIMENTAL": "true", "PULUMI_SKIP_CHECKPOINTS": "true"}
        if self.endpoint:
            env["GPU_TRAINING_LOCAL_ENDPOINT"] = self.endpoint
        return {**env, **self.extra_env}


class _Yaml12(yaml.SafeLoader):
    """Booleans as the engine reads them: `true` and `false` alone."""


_Yaml12.yaml_implicit_resolvers = {
    first: [
        (tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"
    ]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _cause(text: str) -> str:
    """The line of the CLI's output that a person needs most."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith("error:")]
    return (told or lines or ["it printed nothing"])[-1]


def _end(process: subprocess.Popen[str]) -> None:
    """End the CLI and its plugins; an interrupt first, so that it writes its state."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(INTERRUPT_GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
