"""Phases of a long command: said to a person as they begin and end, timed, one line when they fail."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class StepFailed(Exception):
    """What a person must know: one line that names the cause and, where there is one, the log."""


class Steps:
    def __init__(self, console: Console) -> None:
        self.console = console
        self.seconds: dict[str, float] = {}
        self._started = time.monotonic()

    @contextmanager
    def phase(self, name: str, what: str) -> Iterator[None]:
        """Time the body under `name`; `what` is said before it, the seconds after it."""
        began = time.monotonic()
        self.say(f"{name}: {what}")
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began
        self.say(f"{name}: done after {self.seconds[name]:.1f} s")

    def say(self, line: str) -> None:
        elapsed = time.monotonic() - self._started
        self.console.print(f"[dim]{elapsed:6.1f} s[/dim]  {line}", highlight=False, soft_wrap=True)

    def total(self) -> float:
        return time.monotonic() - self._started


def wait_until(
    what: str,
    limit_seconds: float,
    holds: Callable[[], bool],
    say: Callable[[str], None],
    poll_seconds: float = 0.3,
) -> None:
    """Poll until `holds()`; tells every 15 s what it waits for; StepFailed at the limit."""
    began = time.monotonic()
    told = began
    while not holds():
        now = time.monotonic()
        if now - began > limit_seconds:
            raise StepFailed(f"waited {limit_seconds:.0f} s for {what}")
        if now - told >= 15:
            told = now
            say(f"still waiting for {what} ({now - began:.0f} of at most {limit_seconds:.0f} s)")
        time.sleep(poll_seconds)


def run_logged(
    argv: Sequence[str], log: Path, limit_seconds: float, env: Mapping[str, str], cwd: Path, name: str
) -> str:
    """Run to the end with all output in `log`; returns standard output; StepFailed names the last line and the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a") as errors:
        try:
            done = subprocess.run(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                timeout=limit_seconds,
                env=dict(env),
                cwd=cwd,
                text=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise StepFailed(f"{name} took longer than {limit_seconds:.0f} s (log: {log})") from None
        errors.write(done.stdout)
    if done.returncode != 0:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        cause = lines[-1] if lines else "no output"
        raise StepFailed(f"{name} ended with exit code {done.returncode}: {cause} (log: {log})")
    return done.stdout
