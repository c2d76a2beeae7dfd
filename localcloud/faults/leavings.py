"""`make up` killed at random moments: nothing of it may be left, and `make down` puts the rest in order."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console

from .. import daemons
from ..nodes import cgroups
from ..processes import command_line
from ..stack import DRIVER_VARIABLE, LocalStack
from ..up import stack_guard_environment
from .report import FaultRecord
from .timing import Timing
from .verdict import Verdict

GROUP = "Leavings"
LATEST_SECONDS = 30.0  # of a `make up` that takes 40
GONE_LIMIT_SECONDS = 40.0
DOWN_LIMIT_SECONDS = 120.0


def host_traces(local: Path) -> set[str]:
    """What this machine's own tables show that could be a local cloud's: names, links, mounts, loop disks."""
    found = {f"network namespace {line}" for line in _lines("ip", "netns", "list")}
    found |= {f"link {line.split()[1]}" for line in _lines("ip", "-oneline", "link")}
    found |= {f"loop disk {line}" for line in _lines("losetup", "--list", "--noheadings")}
    found |= {f"control group {name}" for name in cgroups.left(local)}
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found |= {f"mount {line.split()[4]}" for line in mounts if str(local) in line or "nspawn" in line}
    return found


def _lines(*command: str) -> list[str]:
    if shutil.which(command[0]) is None:
        return []
    done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    return [line.strip() for line in done.stdout.splitlines() if line.strip()]


def kill_make_up(stack: LocalStack, times: int, seed: int, console: Console) -> list[FaultRecord]:
    """`times` kills by SIGKILL and one by SIGINT, at moments that the seed gives."""
    chance = random.Random(seed)
    plans = [("kill -9", signal.SIGKILL, chance.uniform(0.5, LATEST_SECONDS)) for _ in range(times)]
    plans.append(("Ctrl-C", signal.SIGINT, chance.uniform(5, LATEST_SECONDS)))
    return [kill_once(stack, *plan, console) for plan in plans]


def kill_once(
    stack: LocalStack, words: str, number: int, after_seconds: float, console: Console
) -> FaultRecord:
    local = stack.local / "killed"
    began, before = time.monotonic(), host_traces(local)
    # Without the mark of this laboratory's own stack.
    env = stack_guard_environment(stack) | {DRIVER_VARIABLE: "machine"}
    with open(os.devnull, "wb") as nowhere:
        command = [sys.executable, "-m", "localcloud.up", "--local", str(local)]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=nowhere, stderr=nowhere, env=env, cwd=stack.root,
            start_new_session=True,
            # As in the foreground of a terminal, whatever this command's own parent ignores.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )  # fmt: skip
    ended: int | None = None
    try:
        ended = process.wait(timeout=after_seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(number)
    killed = time.monotonic()
    gone_after = None
    while time.monotonic() - killed < GONE_LIMIT_SECONDS:
        nothing = not daemons.find_leavings(local) and host_traces(local) <= before
        if process.poll() is not None and nothing:
            gone_after = time.monotonic() - killed
            break
        time.sleep(0.1)
    faults = [] if ended is None else [f"make up: expected to be killed, found it ended by {ended} before"]
    faults += [
        f"process: expected none, found {command_line(left.pid)[:80]}"
        for left in daemons.find_leavings(local)
    ]
    faults += [
        f"host: expected what was there before, found {t}" for t in sorted(host_traces(local) - before)
    ]
    down = subprocess.run(
        [sys.executable, "-m", "localcloud.down", "--local", str(local)],
        cwd=stack.root, env=env, capture_output=True, text=True, timeout=DOWN_LIMIT_SECONDS, check=False,
    )  # fmt: skip
    if down.returncode != 0:
        faults.append(f"make down: expected exit code 0, found {down.returncode}: {down.stderr.strip()}")
    if local.exists():
        faults.append("make down: expected no state folder, found one")
        shutil.rmtree(local, ignore_errors=True)
    if process.poll() is None:
        process.kill()
        process.wait()
    outcome = "nothing left" if gone_after is not None else f"still there after {GONE_LIMIT_SECONDS:.0f} s"
    name = f"{words} of make up after {after_seconds:.1f} s"
    console.print(f"{name}: {'passed' if not faults else '; '.join(faults)}", highlight=False, soft_wrap=True)
    return FaultRecord(
        name=name, group=GROUP, description="`make up` ended in the middle", driver="machine", time_factor=1.0,
        verdict=Verdict(not faults, tuple(faults), outcome),
        timing=Timing(None, None, gone_after, None, None, None), seconds=time.monotonic() - began,
    )  # fmt: skip
