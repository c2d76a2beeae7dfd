"""A torchrun that waits with everything imported: what it becomes, how it ends, and what is done without one."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainer.agent import standby as module
from trainer.agent.session import Session
from trainer.agent.standby import RANK_SCRIPT, STANDBY, TORCHRUN, Standby
from trainer.agent.supervisor import OWNER_VARIABLE, in_session, kill_leftovers, owned_by
from trainer.agent.watchdog import ask_for_stacks, rank_processes
from trainer.contracts.worker import ExitReport, exit_file
from trainer.exit_codes import Exit

from localcloud.toolchain import ROOT
from tests.local.cloud_kit import wait_until
from tests.trainer.agent_kit import Cloud, free_port

# A standby that needs no torch: it goes on as the very command.
PLAIN_STANDBY = """
import json, os, sys
print("ready", flush=True)
line = sys.stdin.readline()
order = json.loads(line or sys.exit(0))
log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.dup2(log, 1)
os.dup2(log, 2)
os.execvpe(order["command"][0], order["command"], order["environment"])
"""
RANK = f"""
import os, runpy, sys, types
worker = sys.modules["trainer.worker"] = types.ModuleType("trainer.worker")
def main(argv):
    print(argv, os.environ["TOKEN"], os.environ["RANK"], open("/proc/self/comm").read().strip(), repr(sys.stdin.read()))
    return 3
worker.main = main
sys.argv = ["-", '{{"TOKEN": "secret-value"}}', sys.argv[1], "worker.json"]
runpy.run_path({str(RANK_SCRIPT)!r}, run_name="__main__")
"""


@pytest.fixture
def make_standby(tmp_path: Path) -> Iterator[Callable[..., Standby]]:
    made: list[Standby] = []

    def make(*argv: str) -> Standby:
        made.append(Standby(argv or STANDBY))
        source = str(ROOT / "trainer" / "src")
        made[-1].prepare({**os.environ, OWNER_VARIABLE: str(tmp_path), "PYTHONPATH": source})
        return made[-1]

    yield make
    for one in made:
        one.close()
    kill_leftovers(tmp_path)  # also what was taken


def process_of(standby: Standby) -> subprocess.Popen[bytes]:
    assert standby._process is not None
    return standby._process


def test_torchrun_forks_its_ranks_from_what_is_imported_already(
    make_standby: Callable[..., Standby], tmp_path: Path
) -> None:
    standby, log, config = make_standby(), tmp_path / "worker.log", tmp_path / "worker.json"
    log.write_text("before\n")
    os.mkfifo(config)  # both ranks wait until somebody writes
    wait_until(lambda: standby.ready, "the imports", 120)
    pid = process_of(standby).pid
    command = [*TORCHRUN, "--nnodes", "1", "--node-rank", "0", "--nproc-per-node", "2", "--max-restarts", "0"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port())]
    command += ["-m", "trainer.worker", str(config)]
    taken = standby.take(command, {**os.environ, "TOKEN": "secret-value"}, log)
    assert taken is not None and taken.pid == pid
    wait_until(lambda: len(rank_processes(in_session(pid))) == 2, "both ranks")
    ranks = rank_processes(in_session(pid))
    assert [rank.rank for rank in ranks] == [0, 1]
    # Imported at the lowest priority; what is forked then runs at the priority of this process.
    assert {os.getpriority(os.PRIO_PROCESS, rank.pid) for rank in ranks} == {os.nice(0)}
    for one in in_session(pid):
        shown = Path(f"/proc/{one}/environ").read_bytes() + Path(f"/proc/{one}/cmdline").read_bytes()
        assert b"secret-value" not in shown

    def both_tell() -> bool:
        """One that is asked too early, before it reads its file, is asked again."""
        before = log.read_text().count("in read_config")
        ask_for_stacks(ranks)
        time.sleep(0.2)
        return log.read_text().count("in read_config") >= before + 2

    wait_until(both_tell, "the stacks")
    config.write_text("no configuration")
    assert taken.wait(60) == 1  # torchrun's own code for failed ranks
    reports = [ExitReport.from_json(exit_file(tmp_path, rank).read_bytes()) for rank in (0, 1)]
    assert [report.code for report in reports] == [Exit.CONFIGURATION, Exit.CONFIGURATION]
    assert log.read_text().startswith("before\n") and "ChildFailedError" in log.read_text()


def test_a_forked_rank_has_the_generations_environment_log_and_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "trainer" / "src"),
        "RANK": "7",
        "TOKEN": "of the agent",
    }
    done = subprocess.run(
        [sys.executable, "-c", RANK, str(log)],
        env=environment,
        input=b"typed",
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, b"", b"")
    assert log.read_text() == "['worker.json'] secret-value 7 rank-7 ''\n"


def test_it_ends_with_its_agent_in_the_middle_of_its_imports(make_standby: Callable[..., Standby]) -> None:
    process = process_of(make_standby())
    wait_until(lambda: len(in_session(process.pid)) > 1, "the forkserver")
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does when the agent is gone
    process.wait(20)
    wait_until(lambda: not in_session(process.pid), "the end of all")


def test_it_is_found_by_the_nodes_folder_and_by_no_generations(
    make_standby: Callable[..., Standby], tmp_path: Path
) -> None:
    pid = process_of(make_standby()).pid
    wait_until(lambda: pid in owned_by(tmp_path), "the mark")
    assert kill_leftovers(tmp_path / "runs" / "r" / "gen-0001") == 0
    assert kill_leftovers(tmp_path) >= 1 and not owned_by(tmp_path)


@pytest.mark.parametrize("program", ["import time; time.sleep(60)", "print('ready')", "raise SystemExit(1)"])
def test_one_that_is_late_or_dead_is_not_taken_and_leaves_nothing(
    make_standby: Callable[..., Standby], tmp_path: Path, program: str
) -> None:
    standby = make_standby(sys.executable, "-S", "-c", program)
    process = process_of(standby)
    if "sleep" not in program:
        process.wait(20)
    assert standby.take([*TORCHRUN], {}, tmp_path / "worker.log") is None
    assert process.returncode is not None


def test_where_memory_is_short_there_is_none(
    make_standby: Callable[..., Standby], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "available_gib", lambda: 3.9)
    assert make_standby()._process is None


def test_the_agent_gives_it_the_next_generation_and_starts_afresh_where_there_is_none(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    cloud.standby_argv = (sys.executable, "-S", "-c", PLAIN_STANDBY)
    cloud.pace = dataclasses.replace(cloud.pace, standby_seconds=0.0)
    (agent,) = cloud.boot_all()
    cloud.run("warm", nodes=1, steps=10**6, seconds=0.02, save_every=2)

    def trains_as(generation: int) -> Session:
        wait_until(lambda: agent.state.get("trainer_generation") == generation, f"generation {generation}")
        assert agent.agent._session is not None
        return agent.agent._session

    def waiting(session: Session) -> int:
        wait_until(lambda: session._standby.ready, "a standby")
        return process_of(session._standby).pid

    session = trains_as(1)
    first = waiting(session)
    os.kill(agent.worker_pid, signal.SIGKILL)
    trains_as(2)
    assert agent.worker_pid == first
    second = waiting(session)
    for pid in (second, agent.worker_pid):
        os.kill(pid, signal.SIGKILL)
    trains_as(3)
    assert agent.worker_pid not in (first, second)
    third = waiting(session)
    assert agent.stop() == Exit.STOPPED_SAVED
    assert not os.path.exists(f"/proc/{third}")
