"""Commands of the toolchain: one line of cause, a limit, and nothing left running."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from localcloud.toolchain.running import Failed, Work, bound, last_line

LIMIT_SECONDS = 30.0
PRINT_PID_AND_SLEEP = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ended(pid: int) -> bool:
    deadline = time.monotonic() + LIMIT_SECONDS
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not running(pid)


def pid_in(log: Path) -> int:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not last_line(log) and time.monotonic() < deadline:
        time.sleep(0.02)
    return int(last_line(log))


def test_output_goes_to_the_log_and_a_good_end_is_silent(tmp_path: Path):
    log = tmp_path / "log"
    Work().run(
        [sys.executable, "-c", "import sys; print('one'); print('two', file=sys.stderr)"], log, LIMIT_SECONDS
    )
    assert sorted(log.read_text().split()) == ["one", "two"]


def test_a_bad_end_is_one_line_with_cause_and_log(tmp_path: Path):
    log = tmp_path / "log"
    with pytest.raises(Failed) as fault:
        Work().run(["sh", "-c", "echo first; echo no space left on device; exit 3"], log, LIMIT_SECONDS)
    assert str(fault.value) == f"`sh` failed: no space left on device; log: {log}"


def test_a_command_that_is_not_there_is_one_line_too(tmp_path: Path):
    with pytest.raises(Failed, match="no-such-command"):
        Work().run(["no-such-command"], tmp_path / "log", LIMIT_SECONDS)


def test_the_limit_ends_the_command(tmp_path: Path):
    log = tmp_path / "log"
    with pytest.raises(Failed, match="did not end within 1 s"):
        Work().run([sys.executable, "-c", PRINT_PID_AND_SLEEP], log, 1.0)
    assert ended(pid_in(log))


def test_cancel_ends_what_other_threads_run(tmp_path: Path):
    log, work, faults = tmp_path / "log", Work(), []

    def run() -> None:
        try:
            work.run([sys.executable, "-c", PRINT_PID_AND_SLEEP], log, LIMIT_SECONDS)
        except Failed as fault:
            faults.append(str(fault))

    thread = threading.Thread(target=run)
    thread.start()
    pid = pid_in(log)
    assert running(pid)
    work.cancel()
    thread.join(LIMIT_SECONDS)
    assert ended(pid)
    assert faults == ["stopped because another step failed"]


def test_a_bound_command_ends_with_who_started_it():
    starter = (
        "import subprocess, sys\n"
        "from localcloud.toolchain.running import bound\n"
        f"subprocess.run(bound([sys.executable, '-c', {PRINT_PID_AND_SLEEP!r}]))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    assert running(pid)
    process.kill()
    process.wait()
    process.stdout.close()
    assert ended(pid)


def test_a_bound_command_is_the_command_itself():
    done = subprocess.run(bound(["sh", "-c", "echo $0; exit 7", "word"]), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (7, "word\n")


def test_progress_without_a_terminal_is_plain_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    work = Work()
    with work.step("torch", tmp_path / "log"):
        work.run(["true"], tmp_path / "log", LIMIT_SECONDS)
    told = capfd.readouterr().err
    assert told == f"setup: torch: started (log: {tmp_path / 'log'})\nsetup: torch: ready after 0:00\n"
    assert "\r" not in told and "\033" not in told


def test_a_failed_step_is_not_called_ready(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    work = Work()
    with pytest.raises(Failed), work.step("torch", tmp_path / "log"):
        work.run(["false"], tmp_path / "log", LIMIT_SECONDS)
    assert "ready" not in capfd.readouterr().err
