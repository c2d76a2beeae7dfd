"""Running commands for a person: progress, limits, one line of cause when it fails, nothing left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

PLAIN_INTERVAL_SECONDS = 20.0
LIVE_INTERVAL_SECONDS = 0.5
LINE_LENGTH = 110

# prctl(PR_SET_PDEATHSIG, SIGKILL), then the command itself.
BOUND = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"


def bound(command: Sequence[str]) -> list[str]:
    """The command, to be killed by the kernel when the thread that starts it is gone, even by `kill -9`."""
    return [sys.executable, "-S", "-c", BOUND, *command]


class Failed(Exception):
    """Something a person must know: one line with cause, place and what to do."""


class Work:
    """Steps, maybe side by side, shown on standard error: a live line on a terminal, else plain ones."""

    def __init__(self) -> None:
        self._steps: dict[str, tuple[float, Path]] = {}
        self._lock = threading.Lock()
        self._cancelled = threading.Event()
        self._live = sys.stderr.isatty()
        self._shown_at = time.monotonic()

    def say(self, line: str) -> None:
        with self._lock:
            self._write(line)

    def cancel(self) -> None:
        """Make every command and every wait of this work end soon."""
        self._cancelled.set()

    def pause(self, seconds: float) -> None:
        if self._cancelled.wait(seconds):
            raise Failed("stopped because another step failed")

    @contextmanager
    def step(self, name: str, log: Path) -> Iterator[None]:
        start = time.monotonic()
        with self._lock:
            self._steps[name] = (start, log)
            self._write(f"{name}: started (log: {log})")
        done = False
        try:
            yield
            done = True
        finally:
            with self._lock:
                del self._steps[name]
                if done:
                    self._write(f"{name}: ready after {_clock(time.monotonic() - start)}")

    def run(
        self,
        command: Sequence[str],
        log: Path,
        limit_seconds: float,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        """Run to the end with output appended to `log`; raise Failed on a bad end, the limit, or a cancel."""
        name = Path(command[0]).name
        with log.open("ab") as output:
            process = subprocess.Popen(
                bound(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(env) if env is not None else None,
                cwd=cwd,
                start_new_session=True,
            )
            deadline = time.monotonic() + limit_seconds
            try:
                while process.poll() is None:
                    if time.monotonic() > deadline:
                        raise Failed(f"`{name}` did not end within {limit_seconds:.0f} s; log: {log}")
                    self.pause(0.1)
                    self._show()
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        if process.returncode != 0:
            raise Failed(f"`{name}` failed: {last_line(log)}; log: {log}")

    def _show(self) -> None:
        with self._lock:
            now = time.monotonic()
            interval = LIVE_INTERVAL_SECONDS if self._live else PLAIN_INTERVAL_SECONDS
            if now - self._shown_at < interval:
                return
            self._shown_at = now
            parts = [f"{name} {_clock(now - start)}" for name, (start, _) in self._steps.items()]
            detail = " ".join(last_line(log, 40) for _, log in self._steps.values())
            line = f"setup: {', '.join(parts)}  {detail}"[:LINE_LENGTH]
            sys.stderr.write(f"\r\033[K{line}" if self._live else f"{line}\n")
            sys.stderr.flush()

    def _write(self, line: str) -> None:
        sys.stderr.write(f"\r\033[Ksetup: {line}\n" if self._live else f"setup: {line}\n")
        sys.stderr.flush()
        self._shown_at = time.monotonic()


def last_line(log: Path, limit: int = 300) -> str:
    """The last line of a log that says something, cut to `limit` characters; empty if there is none."""
    if not log.exists():
        return ""
    with log.open("rb") as stream:
        stream.seek(max(0, log.stat().st_size - 4096))
        lines = [line.strip() for line in stream.read().decode(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), "")[:limit]


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
