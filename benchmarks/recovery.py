"""From `kill -9` of a worker to the end of the next step: a node's agent against a script that torchrun restarts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from localcloud.toolchain import ROOT

WAIT_SECONDS = 120.0
SCRIPT = Path(__file__).with_name("plain_script.py")


def race(root: Path, stack: ExitStack) -> tuple[Callable[[], float], Callable[[], float]]:
    """Ours: a node's agent with its own torchrun, over an S3 on this machine; the run goes on from turn to turn.

    A worker is killed once the agent's standby is ready, as after the first minute of a run. Who is not at turn stands
    still meanwhile.
    """
    from trainer.agent.board import utc_now
    from trainer.agent.pace import Pace
    from trainer.agent.standby import STANDBY
    from trainer.agent.supervisor import torchrun_argv
    from trainer.agent.watchdog import rank_processes
    from trainer.contracts.run import CheckpointSettings, RunConfig, RunPointer, TrainingConfig

    from localcloud.aws.server import AwsServer
    from tests.local.cloud_kit import REGION, wait_until
    from tests.trainer import agent_kit

    aws = stack.enter_context(AwsServer(tick_seconds=0.05))
    os.environ.update(
        {
            "AWS_ENDPOINT_URL": aws.endpoint,
            "AWS_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'trainer' / 'src'}",
        }
    )
    agent_kit.fake_workers = torchrun_argv
    cloud = stack.enter_context(agent_kit.cloud(aws.endpoint, root, 1, 1))
    cloud.standby_argv, cloud.pace = STANDBY, Pace(standby_seconds=0)
    (agent,) = cloud.boot_all()
    training = TrainingConfig(
        model="tiny-vision",
        dataset="numbers@v1",
        steps=10**6,
        global_batch_size=8,
        checkpoint=CheckpointSettings(every_seconds=1, keep=2),
    )
    run = RunConfig(name="bench", groups=["gpu"], nodes=1, training=training, created_at=utc_now())
    cloud.store.put(cloud.bucket, "runs/bench/config.json", run.to_json().encode())
    cloud.board.put_pointer("gpu", RunPointer(run="bench", action="start", updated_at=utc_now()))

    def events(generation: int, kind: str) -> list[Any]:
        paths = agent.folder.glob(f"runs/bench/gen-{generation:04d}/events-rank0.jsonl")
        lines = [json.loads(line) for path in paths for line in path.read_text().splitlines(keepends=True)]
        return [event for event in lines if event["kind"] == kind]

    def worker() -> int:
        wait_until(
            lambda: bool(events(cloud.generation("bench"), "checkpoint")), "a checkpoint", WAIT_SECONDS
        )
        session = agent.agent._session
        assert session is not None and session._training is not None
        wait_until(lambda: session._standby.ready, "the standby", WAIT_SECONDS)
        (rank,) = rank_processes(session._training.workers.pids())
        return rank.pid

    def ours() -> float:
        pid, generation = worker(), cloud.generation("bench")
        with _paused(plain()[-1]["pid"]):
            os.kill(pid, 9)
            killed = time.time()
            wait_until(lambda: bool(events(generation + 1, "step")), "the next step", WAIT_SECONDS)
        return events(generation + 1, "step")[0]["time"] - killed

    log = root / "plain.jsonl"
    log.touch()

    def plain() -> list[Any]:
        return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]

    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts", "100"]
    process = subprocess.Popen(
        [*launcher, str(SCRIPT), "recover", str(root / "plain.pt"), str(log)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    wait_until(lambda: bool(plain()), "the script's first step", WAIT_SECONDS)

    def theirs() -> float:
        pid = plain()[-1]["pid"]
        with _paused(worker()):
            os.kill(pid, 9)
            killed = time.time()
            wait_until(lambda: plain()[-1]["pid"] != pid, "the script's next step", WAIT_SECONDS)
        return next(line["time"] for line in plain() if line["time"] > killed and line["pid"] != pid) - killed

    return ours, theirs


@contextmanager
def _paused(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
