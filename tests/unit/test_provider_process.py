"""The plugin as a process: says its port, ends quietly when told to, and never outlives its engine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2_grpc

ROOT = Path(__file__).parents[2]
LIMIT_SECONDS = 60.0
ENGINE = """
import subprocess, sys, time
plugin = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
plugin.stdout.readline()
print(plugin.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("package", ["aws", "kubernetes"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_its_port_and_ends_quietly(package: str, number: int) -> None:
    command = [sys.executable, "-m", f"localcloud.provider.{package}"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=pipe, stderr=pipe) as plugin:
        assert plugin.stdout is not None
        with grpc.insecure_channel(f"127.0.0.1:{int(plugin.stdout.readline())}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            version = stub.GetPluginInfo(empty_pb2.Empty(), timeout=LIMIT_SECONDS).version
        plugin.send_signal(number)
        printed = plugin.communicate(timeout=LIMIT_SECONDS)
    assert int(version.split(".")[0]) >= 4, "the engine wants a plugin as new as the SDK"
    assert (plugin.returncode, *printed) == (0, "", "")


def test_it_ends_when_its_engine_was_killed() -> None:
    command = [sys.executable, "-c", ENGINE, sys.executable, "-m", "localcloud.provider.aws"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        plugin = int(engine.stdout.readline())
        assert runs(plugin)
        engine.kill()
    deadline = time.monotonic() + LIMIT_SECONDS
    while runs(plugin) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not runs(plugin)


def runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
