"""A node's first process: console, shutdown, and nothing left when it or its driver dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from localcloud.nodes.console import Console, parse
from localcloud.nodes.process import INIT
from localcloud.processes import Identity, identify, marked
from tests.local.cloud_kit import wait_until

MARK = "GPU_TRAINING_TEST_INIT"


def command(console: Path, script: str, grace_seconds: float = 5) -> list[str]:
    return [sys.executable, "-I", str(INIT), str(console), str(grace_seconds), "bash", "-c", script]


def run(tmp_path: Path, script: str, grace_seconds: float = 5) -> subprocess.Popen[bytes]:
    env = {"PATH": os.environ["PATH"], MARK: str(tmp_path)}
    return subprocess.Popen(command(tmp_path / "console.log", script, grace_seconds), env=env)


def left(tmp_path: Path) -> list[Identity]:
    return marked(MARK, str(tmp_path))


def console_has(tmp_path: Path, text: str) -> bool:
    path = tmp_path / "console.log"
    return path.exists() and text in path.read_text()


def test_output_gets_time_stamps_and_the_exit_code_is_passed_on(tmp_path: Path) -> None:
    process = run(tmp_path, "echo one; echo two >&2; exit 55")
    assert process.wait(timeout=20) == 55
    lines = (tmp_path / "console.log").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["one", "two"]
    assert all(line[:2] == "20" and line.split(" ", 1)[0].endswith("Z") for line in lines)


def test_the_end_of_the_main_process_ends_its_orphans(tmp_path: Path) -> None:
    process = run(tmp_path, "setsid bash -c 'sleep 600 & sleep 600' & sleep 0.2; exit 3")
    assert process.wait(timeout=20) == 3
    wait_until(lambda: left(tmp_path) == [], "the orphans' end", 5)


def test_sigterm_reaches_the_main_process_first(tmp_path: Path) -> None:
    process = run(tmp_path, "trap 'echo saved; exit 75' TERM; echo up; while :; do sleep 0.1; done")
    wait_until(lambda: console_has(tmp_path, "up"), "the start")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 75
    assert console_has(tmp_path, "saved")


def test_who_does_not_listen_is_killed_after_the_grace(tmp_path: Path) -> None:
    process = run(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.1; done", grace_seconds=0.3)
    wait_until(lambda: console_has(tmp_path, "up"), "the start")
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 128 + signal.SIGKILL
    assert left(tmp_path) == []


def test_kill_9_of_the_driver_takes_the_whole_node_along(tmp_path: Path) -> None:
    script = "setsid sleep 600 & echo up; sleep 600"
    arguments = [repr(part) for part in command(tmp_path / "console.log", script)]
    driver = f"import subprocess; subprocess.Popen([{', '.join(arguments)}], start_new_session=True).wait()"
    process = subprocess.Popen(
        [sys.executable, "-c", driver], env={"PATH": os.environ["PATH"], MARK: str(tmp_path)}
    )
    wait_until(lambda: console_has(tmp_path, "up"), "the start")
    assert len(left(tmp_path)) >= 4
    process.kill()
    process.wait()
    wait_until(lambda: left(tmp_path) == [], "the node's end", 10)


def test_a_pid_that_somebody_else_has_now_is_not_the_same_process() -> None:
    own = identify(os.getpid())
    assert own is not None
    assert own.alive()
    assert not Identity(own.pid, own.started - 1).alive()
    assert not Identity(own.pid, own.started - 1).send(signal.SIGKILL)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("2026-11-30T03:00:00.500Z bootstrap: node document s3://b/k", "node document s3://b/k"),
        ("2026-11-30T03:00:00.500Z something bootstrap: else", None),
        ("bootstrap: no time stamp", None),
    ],
)
def test_steps_are_the_bootstrap_lines(line: str, step: str | None) -> None:
    parsed = parse(line)
    assert (parsed[1] if parsed else None) == step


def test_the_console_is_followed_line_by_line(tmp_path: Path) -> None:
    console = Console(tmp_path / "console.log")
    assert not console.read()
    with console.path.open("w") as file:
        file.write("2026-11-30T03:00:00.000Z bootstrap: one\n2026-11-30T03:00:01.500Z bootstrap: agent sta")
        file.flush()
        assert console.read()
        assert not console.agent_started
        file.write("rted, pid 7\n2026-11-30T03:00:09.000Z bootstrap: agent ended with 0\n")
    console.read()
    assert console.steps == [
        {"step": "one", "seconds": 0.0},
        {"step": "agent started, pid 7", "seconds": 1.5},
    ]
    assert console.boot_seconds == 1.5
    console.restart()
    assert (console.steps, console.agent_started) == ([], False)
    assert not console.read(), "what was there before the restart belongs to the last boot"
