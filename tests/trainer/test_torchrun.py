"""How the agent starts workers, as torchrun itself understands it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from torch.distributed.run import config_from_args, parse_args
from trainer.agent.supervisor import torchrun_argv, worker_environment
from trainer.contracts.worker import WorkerConfig
from trainer.store import Store

from tests.trainer.kit import Bench, free_port, run_config, worker_config

# What a node's own name is where no peer can resolve it.
NAMELESS = """
import socket
socket.gethostname = lambda: "ip-10-0-0-1.nowhere.invalid"
socket.getfqdn = lambda name="": "ip-10-0-0-1.nowhere.invalid"
"""
WORKER = """
import json, os, pathlib
names = ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE")
told = pathlib.Path(os.environ["TOLD"], os.environ["RANK"])
told.write_text(json.dumps([os.environ[name] for name in names]))
"""


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkerConfig:
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    bench = Bench(tmp_path, "bucket", Store())
    config = worker_config(bench, run_config(), 1, world=2)
    generation = config.generation.model_copy(update={"master_port": free_port()})
    return config.model_copy(update={"generation": generation})


def test_workers_have_longer_than_a_save_may_take_before_torchrun_kills_them(
    asked: WorkerConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default torchrun gives them 30 s after a SIGTERM; it starts nothing again by itself."""
    for name, value in worker_environment(asked, tmp_path, {}).items():
        monkeypatch.setenv(name, value)
    understood, _, _ = config_from_args(parse_args(torchrun_argv(asked, tmp_path)[3:]))
    assert understood.shutdown_timeout == 90
    assert understood.max_restarts == 0


def test_workers_meet_at_an_address_even_where_no_host_name_resolves(
    asked: WorkerConfig, tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(NAMELESS)
    (tmp_path / "worker.py").write_text(WORKER)
    argv = torchrun_argv(asked, tmp_path)
    worker = argv.index("trainer.worker") - 1
    own = {"TOLD": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [*argv[:worker], str(tmp_path / "worker.py")],
        env={**worker_environment(asked, tmp_path, os.environ), **own},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    port = str(asked.generation.master_port)
    for rank in ("0", "1"):
        assert json.loads((tmp_path / rank).read_text()) == ["127.0.0.1", port, rank, "2"]
