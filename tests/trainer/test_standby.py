"""A torchrun that waits with torch imported: what it becomes, what it knows before, how it ends, and what if not."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from trainer.agent.session import Session
from trainer.agent.standby import STANDBY, TORCHRUN, Standby
from trainer.agent.supervisor import OWNER_VARIABLE, kill_leftovers, owned_by
from trainer.exit_codes import Exit

from localcloud.toolchain import ROOT
from tests.local.cloud_kit import wait_until
from tests.trainer.agent_kit import Cloud, free_port

TELL = """
import json, os, sys
told = {"argv": sys.argv[1:], "environment": dict(os.environ), "nice": os.nice(0), "input": sys.stdin.read()}
print(json.dumps(told), flush=True)
"""
# In place of torch. `main` goes on as the program that it is given: an interpreter's arguments.
TORCHRUN_FAKE = """
import os, sys, time
print("libraries greet")
while os.path.exists(os.environ.get("STILL_IMPORTING", "")):
    time.sleep(0.01)
def main(argv):
    os.environ["RANK"] = "0"
    os.execv(sys.executable, [sys.executable, *argv])
"""


@pytest.fixture
def fake_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "modules" / "torch" / "distributed"
    package.mkdir(parents=True)
    for folder in (package.parent, package):
        (folder / "__init__.py").touch()
    (package / "run.py").write_text(TORCHRUN_FAKE)
    monkeypatch.setenv("PYTHONPATH", f"{package.parents[1]}:{ROOT / 'trainer' / 'src'}")


@pytest.fixture
def make_standby(tmp_path: Path) -> Iterator[Callable[..., Standby]]:
    made: list[Standby] = []

    def make(*argv: str) -> Standby:
        environment = {**os.environ, OWNER_VARIABLE: str(tmp_path), "OF_THE_AGENT": "yes"}
        made.append(Standby(argv or STANDBY, environment))
        made[-1].prepare()
        return made[-1]

    yield make
    for standby in made:
        standby.close()


def pid_of(standby: Standby) -> int:
    assert standby._process is not None
    return standby._process.pid


@pytest.mark.usefixtures("fake_torch")
def test_it_goes_on_as_torchrun_with_the_generations_arguments_environment_and_log(
    make_standby: Callable[..., Standby], tmp_path: Path
) -> None:
    standby, log = make_standby(), tmp_path / "worker.log"
    wait_until(lambda: standby.ready, "the standby")
    pid = pid_of(standby)
    log.write_text("before\n")
    environment = {"PATH": os.environ["PATH"], "TOKEN": "secret-value"}
    taken = standby.take([*TORCHRUN, "-S", "-c", TELL, "--nnodes", "2"], environment, log)
    assert taken is not None and taken.pid == pid and taken.wait(20) == 0
    before, line = log.read_text().splitlines()
    told = json.loads(line)
    assert before == "before" and told["argv"] == ["--nnodes", "2"] and told["input"] == ""
    assert told["environment"].items() >= environment.items() and "OF_THE_AGENT" not in told["environment"]
    assert told["nice"] == os.nice(0)  # imported at the lowest priority, and runs at this process' own
    assert not standby.ready and standby.take(TORCHRUN, environment, log) is None


def test_a_real_torchrun_starts_its_workers_from_it(
    make_standby: Callable[..., Standby], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "trainer" / "src"))
    standby, log = make_standby(), tmp_path / "worker.log"
    script = tmp_path / "script.py"
    script.write_text(
        "import os; print('rank', os.environ['RANK'], os.environ['TOKEN'], flush=True); os._exit(3)"
    )
    wait_until(lambda: standby.ready, "torch", 60)
    command = [*TORCHRUN, "--nnodes", "1", "--node-rank", "0", "--nproc-per-node", "1", "--max-restarts", "0"]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), str(script)]
    taken = standby.take(command, {"PATH": os.environ["PATH"], "TOKEN": "secret-value"}, log)
    assert taken is not None and taken.wait(60) == 1  # torchrun's own code for a failed worker
    assert "rank 0 secret-value\n" in log.read_text() and "exitcode  : 3" in log.read_text()


@pytest.mark.usefixtures("fake_torch")
def test_it_ends_with_its_agent_also_in_the_middle_of_its_import(
    make_standby: Callable[..., Standby], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    importing = tmp_path / "importing"
    importing.touch()
    for still in (str(importing), ""):
        monkeypatch.setenv("STILL_IMPORTING", still)
        standby = make_standby()
        process = standby._process
        assert process is not None and process.stdin is not None
        if not still:
            wait_until(lambda standby=standby: standby.ready, "the standby")
        process.stdin.close()  # as the kernel does when the agent is gone
        assert process.wait(20) == 0


@pytest.mark.usefixtures("fake_torch")
def test_it_is_found_by_the_nodes_folder_and_by_no_generations(
    make_standby: Callable[..., Standby], tmp_path: Path
) -> None:
    pid = pid_of(make_standby())
    wait_until(lambda: pid in owned_by(tmp_path), "the mark")
    assert kill_leftovers(tmp_path / "runs" / "r" / "gen-0001") == 0
    assert kill_leftovers(tmp_path) == 1


@pytest.mark.parametrize("program", ["import time; time.sleep(60)", "print('ready')", "raise SystemExit(1)"])
def test_one_that_is_late_or_dead_is_not_taken_and_leaves_nothing(
    make_standby: Callable[..., Standby], tmp_path: Path, program: str
) -> None:
    standby = make_standby(sys.executable, "-S", "-c", program)
    process = standby._process
    assert process is not None
    if "sleep" not in program:
        process.wait(20)
    assert standby.take([*TORCHRUN], {}, tmp_path / "worker.log") is None
    assert process.returncode is not None


@pytest.mark.usefixtures("fake_torch")
def test_the_agent_gives_it_the_next_generation_and_starts_afresh_where_there_is_none(
    make_cloud: Callable[[int], Cloud],
) -> None:
    cloud = make_cloud(1)
    cloud.standby_argv, cloud.pace = STANDBY, dataclasses.replace(cloud.pace, standby_seconds=0.0)
    (agent,) = cloud.boot_all()
    cloud.run("warm", nodes=1, steps=10**6, seconds=0.02, save_every=2)

    def trains_as(generation: int) -> Session:
        wait_until(lambda: agent.state.get("trainer_generation") == generation, f"generation {generation}")
        assert agent.agent._session is not None
        return agent.agent._session

    def waiting(session: Session) -> Standby:
        wait_until(lambda: session._standby.ready, "a standby")
        return session._standby

    session = trains_as(1)
    first = pid_of(waiting(session))
    os.kill(agent.worker_pid, signal.SIGKILL)
    trains_as(2)
    assert agent.worker_pid == first  # and its result and its end are seen as any other's:
    second = pid_of(waiting(session))
    assert second != first
    os.kill(second, signal.SIGKILL)
    os.kill(agent.worker_pid, signal.SIGKILL)
    trains_as(3)
    assert agent.worker_pid != second
    third = pid_of(waiting(session))
    assert agent.stop() == Exit.STOPPED_SAVED
    assert not os.path.exists(f"/proc/{third}")
