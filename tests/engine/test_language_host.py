"""The stand-in language host, spoken to as the engine does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

from localcloud.engine.language_host import LanguageHost, serve

LIMIT_SECONDS = 30.0

# Stands for the SDK's executor: writes down how it was called, then ends as the program's first argument says.
EXECUTOR = """
import json, os, signal, sys
record = {"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}
open(os.environ["RECORD"], "w").write(json.dumps(record))
how = sys.argv[-1]
if how == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if how == "hangs":
    import time
    time.sleep(600)
sys.exit(int(how))
"""


@pytest.fixture
def record(tmp_path: Path) -> Path:
    os.environ["RECORD"] = str(tmp_path / "record.json")
    return tmp_path / "record.json"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[language_pb2_grpc.LanguageRuntimeStub]:
    executor = tmp_path / "executor"
    executor.write_text(EXECUTOR)
    served = LanguageHost(executor, "127.0.0.1:1")
    server, port = serve(served)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield language_pb2_grpc.LanguageRuntimeStub(channel)
    served.stop()
    server.stop(grace=None).wait()


def run_request(how: str, **fields: Any) -> Any:
    info = language_pb2.ProgramInfo(
        root_directory="/root-of-project", program_directory="/program", entry_point="."
    )
    return language_pb2.RunRequest(
        **{
            "project": "gpu-training",
            "stack": "dev",
            "organization": "organization",
            "pwd": "/program",
            "monitor_address": "127.0.0.1:2",
            "parallel": 4,
            "info": info,
            "args": [how],
            **fields,
        }
    )


def eventually(happened: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + LIMIT_SECONDS
    while not happened() and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened()


def running(pid: int) -> bool:
    """Whether the process still does something; one that has ended but was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


class TestRun:
    def test_a_program_is_told_everything_that_the_engine_said(self, host: Any, record: Path):
        answer = host.Run(
            run_request("0", dryRun=True, config={"gpu-training:a": "1"}, configSecretKeys=["gpu-training:b"])
        )

        assert (answer.error, answer.bail) == ("", False)
        told = json.loads(record.read_text())
        options = dict(zip(told["arguments"][:-2:2], told["arguments"][1:-2:2], strict=True))
        assert options == {
            "--monitor": "127.0.0.1:2",
            "--engine": "127.0.0.1:1",
            "--project": "gpu-training",
            "--stack": "dev",
            "--organization": "organization",
            "--dry_run": "true",
            "--parallel": "4",
            "--pwd": "/program",
            "--root_directory": "/root-of-project",
        }
        assert told["arguments"][-2:] == [".", "0"]
        assert json.loads(told["environment"]["PULUMI_CONFIG"]) == {"gpu-training:a": "1"}
        assert json.loads(told["environment"]["PULUMI_CONFIG_SECRET_KEYS"]) == ["gpu-training:b"]

    def test_an_update_is_no_dry_run(self, host: Any, record: Path):
        host.Run(run_request("0", dryRun=False))
        arguments = json.loads(record.read_text())["arguments"]
        assert arguments[arguments.index("--dry_run") + 1] == "false"

    def test_a_program_does_not_see_the_import_path_of_the_host(self, host: Any, record: Path):
        os.environ["PYTHONPATH"] = "/somewhere"
        host.Run(run_request("0"))
        assert "PYTHONPATH" not in json.loads(record.read_text())["environment"]

    def test_a_fault_that_the_program_has_told_is_not_told_again(self, host: Any, record: Path):
        answer = host.Run(run_request("32"))
        assert (answer.error, answer.bail) == ("", True)

    @pytest.mark.parametrize(("how", "told"), [("3", "exit code 3"), ("killed", "signal 9")])
    def test_any_other_end_is_an_error_that_names_it(self, host: Any, record: Path, how: str, told: str):
        answer = host.Run(run_request(how))
        assert told in answer.error
        assert not answer.bail

    def test_cancel_ends_the_program(self, host: Any, record: Path):
        call = host.Run.future(run_request("hangs"))
        assert eventually(record.exists)
        host.Cancel(Empty())
        assert "ended by signal 15" in call.result(timeout=LIMIT_SECONDS).error


class TestRunPlugin:
    def request(self, pack: Path, kind: str = "analyzer") -> Any:
        info = language_pb2.ProgramInfo(
            root_directory=str(pack), program_directory=str(pack), entry_point="."
        )
        env = [f"{name}={value}" for name, value in os.environ.items()] + ["OF_THE_CALL=a=b"]
        return language_pb2.RunPluginRequest(info=info, kind=kind, args=["127.0.0.1:1"], env=env)

    def test_a_policy_pack_s_output_and_end_come_through(self, host: Any, tmp_path: Path):
        (tmp_path / "__main__.py").write_text(
            "import os, sys\n"
            "print('4711', os.environ['OF_THE_CALL'], os.getcwd())\n"
            "print('a complaint', file=sys.stderr)\n"
            "sys.exit(5)\n"
        )
        parts = list(host.RunPlugin(self.request(tmp_path)))
        assert b"".join(part.stdout for part in parts).decode() == f"4711 a=b {tmp_path}\n"
        assert b"".join(part.stderr for part in parts) == b"a complaint\n"
        assert parts[-1].exitcode == 5

    def test_the_pack_ends_with_the_call(self, host: Any, tmp_path: Path):
        (tmp_path / "__main__.py").write_text("import os, time\nprint(os.getpid())\ntime.sleep(600)\n")
        call = host.RunPlugin(self.request(tmp_path))
        pid = int(next(call).stdout)
        assert running(pid)
        call.cancel()
        assert eventually(lambda: not running(pid))

    def test_other_plugins_are_refused(self, host: Any, tmp_path: Path):
        with pytest.raises(grpc.RpcError) as refusal:
            list(host.RunPlugin(self.request(tmp_path, kind="resource")))
        assert refusal.value.code() == grpc.StatusCode.UNIMPLEMENTED  # pyright: ignore[reportAttributeAccessIssue]


def test_nothing_is_asked_for_and_nothing_is_installed(host: Any):
    assert host.Handshake(language_pb2.LanguageHandshakeRequest()) == language_pb2.LanguageHandshakeResponse()
    assert list(host.GetRequiredPackages(language_pb2.GetRequiredPackagesRequest()).packages) == []
    assert list(host.InstallDependencies(language_pb2.InstallDependenciesRequest())) == []
    assert host.About(language_pb2.AboutRequest()).executable == sys.executable


class TestProcess:
    def start(self, tmp_path: Path) -> subprocess.Popen[str]:
        command = [
            sys.executable,
            "-m",
            "localcloud.engine.language_host",
            "--executor",
            str(tmp_path),
            "127.0.0.1:1",
        ]
        return subprocess.Popen(
            [*command, "--logtostderr", "-v=9"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_it_prints_its_port_and_ends_quietly(self, tmp_path: Path, number: int):
        process = self.start(tmp_path)
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = language_pb2_grpc.LanguageRuntimeStub(channel)
            assert stub.About(language_pb2.AboutRequest(), timeout=LIMIT_SECONDS).version
        process.send_signal(number)
        output, complaints = process.communicate(timeout=LIMIT_SECONDS)
        assert (process.returncode, output, complaints) == (0, "", "")

    def test_it_ends_when_the_engine_is_gone(self, tmp_path: Path):
        engine = (
            "import subprocess, sys, time\n"
            "host = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)\n"
            "host.stdout.readline()\n"
            "print(host.pid, flush=True)\n"
            "time.sleep(600)\n"
        )
        command = [
            sys.executable,
            "-m",
            "localcloud.engine.language_host",
            "--executor",
            str(tmp_path),
            "127.0.0.1:1",
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", engine, *command], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        host = int(process.stdout.readline())
        assert running(host)
        process.kill()
        process.communicate()
        assert eventually(lambda: not running(host))
