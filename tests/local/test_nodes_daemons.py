"""The local cloud's background processes: found by identity, stopped by identity, nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcloud import daemons
from localcloud.daemons import DaemonFailed
from localcloud.processes import identify
from tests.local.cloud_kit import wait_until

SLEEPER = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]


def up(local: Path, name: str) -> bool:
    return "up" in (local / "log" / f"{name}.log").read_text()


def start(local: Path, name: str, command: list[str] = SLEEPER) -> daemons.Daemon:
    return daemons.start(local, name, command, lambda: up(local, name), limit_seconds=20)


def test_a_daemon_is_started_once_found_and_stopped(tmp_path: Path) -> None:
    first = start(tmp_path, "aws")
    assert start(tmp_path, "aws") == first
    assert daemons.running(tmp_path, "aws") == first
    assert daemons.stop(tmp_path, "aws")
    assert not first.identity.alive()
    assert daemons.running(tmp_path, "aws") is None
    assert not daemons.stop(tmp_path, "aws")


def test_a_stale_file_that_names_somebody_elses_process_harms_nobody(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        identity = identify(bystander.pid)
        assert identity is not None
        stale = {
            "name": "aws",
            "pid": bystander.pid,
            "started": identity.started - 5,
            "command": [],
            "log": "",
        }
        (tmp_path / "daemons").mkdir()
        (tmp_path / "daemons" / "aws.json").write_text(json.dumps(stale))
        assert daemons.running(tmp_path, "aws") is None
        assert not daemons.stop(tmp_path, "aws")
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_daemon_that_ends_at_its_start_tells_its_last_line_and_log(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('port 1 is in use')"]
    with pytest.raises(DaemonFailed, match=r"aws ended at its start: port 1 is in use \(log: .*aws\.log\)"):
        start(tmp_path, "aws", command)
    assert daemons.running(tmp_path, "aws") is None


def test_a_daemon_that_never_gets_ready_is_stopped(tmp_path: Path) -> None:
    with pytest.raises(DaemonFailed, match="nodes was not ready within"):
        daemons.start(tmp_path, "nodes", SLEEPER, lambda: False, limit_seconds=0.5)
    assert daemons.find_leavings(tmp_path) == []


def test_what_a_killed_daemon_leaves_is_found_and_ended(tmp_path: Path) -> None:
    script = (
        "import subprocess, time; subprocess.Popen(['sleep', '600'], start_new_session=True); "
        "print('up', flush=True); time.sleep(600)"
    )
    daemon = start(tmp_path, "nodes", [sys.executable, "-c", script])
    os.kill(daemon.pid, 9)
    wait_until(lambda: not daemon.identity.alive(), "the daemon's end")
    (left,) = daemons.find_leavings(tmp_path)
    lines = daemons.end_leavings(tmp_path, grace_seconds=2)
    assert [line.split(" ", 1)[1] for line in lines] == ["sleep 600"]
    assert not left.alive()
    assert daemons.find_leavings(tmp_path) == []


def test_another_local_clouds_processes_are_not_touched(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    theirs = start(other, "aws")
    try:
        start(mine, "aws")
        daemons.end_leavings(mine, grace_seconds=2)
        assert theirs.identity.alive()
        assert daemons.find_leavings(mine) == []
    finally:
        daemons.end_leavings(other, grace_seconds=2)
