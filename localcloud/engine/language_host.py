"""A small `pulumi-language-python`, for a Pulumi CLI without one, as one built from its Go modules is.

It serves the engine's LanguageRuntime protocol on the SDK's own gRPC stubs, and runs programs and policy packs
with the interpreter that runs this module: what is installed there is what they can import.

    python -m localcloud.engine.language_host --executor <pulumi-language-python-exec> <engine address>

Like every plugin it prints its port, serves until SIGINT or SIGTERM, and also ends when the engine is gone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import grpc
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

from localcloud.toolchain.running import bound

# The SDK's executor ends with this after it has told the user what is wrong: nothing more is to be said.
EXIT_ALREADY_TOLD = 32
MAX_MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own limit
STOP_GRACE_SECONDS = 5.0
PARENT_INTERVAL_SECONDS = 1.0


class LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """`executor` is the SDK's script that connects a program to the engine."""

    def __init__(self, executor: Path, engine_address: str) -> None:
        self._executor = executor
        self._engine_address = engine_address
        self._children: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()

    def Handshake(self, request: Any, context: grpc.ServicerContext) -> Any:
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: grpc.ServicerContext) -> Any:
        return plugin_pb2.PluginInfo()

    def About(self, request: Any, context: grpc.ServicerContext) -> Any:
        return language_pb2.AboutResponse(executable=sys.executable, version=platform.python_version())

    def GetRequiredPackages(self, request: Any, context: grpc.ServicerContext) -> Any:
        """None: providers are on the PATH of this run, so there is nothing to fetch before it."""
        return language_pb2.GetRequiredPackagesResponse()

    def GetProgramDependencies(self, request: Any, context: grpc.ServicerContext) -> Any:
        return language_pb2.GetProgramDependenciesResponse()

    def InstallDependencies(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Nothing: the environment is made by the toolchain, from locked files."""
        return iter(())

    def Run(self, request: Any, context: grpc.ServicerContext) -> Any:
        """Run a program to its end. Its output is this process's, which the engine shows."""
        command = [
            *(sys.executable, "-u", str(self._executor)),
            *("--monitor", request.monitor_address, "--engine", self._engine_address),
            *("--project", request.project, "--stack", request.stack, "--organization", request.organization),
            *("--dry_run", "true" if request.dryRun else "false", "--parallel", str(request.parallel)),
            *("--pwd", request.pwd, "--root_directory", request.info.root_directory),
            *(request.info.entry_point, *request.args),
        ]
        # This module's own import path is no part of what a program sees with the official host.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        env["PULUMI_CONFIG"] = json.dumps(dict(request.config))
        env["PULUMI_CONFIG_SECRET_KEYS"] = json.dumps(list(request.configSecretKeys))
        with self._child(command, env) as program:
            code = program.wait()
        if code == 0:
            return language_pb2.RunResponse()
        if code == EXIT_ALREADY_TOLD:
            return language_pb2.RunResponse(bail=True)
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return language_pb2.RunResponse(error=f"the program {how}")

    def RunPlugin(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        """Run a policy pack: its output as it comes, then its exit code. Ends with the call."""
        if request.kind != "analyzer":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"this language host runs no {request.kind} plugins")
        pack = request.info.program_directory
        command = [sys.executable, "-u", "-m", "pulumi.policy", *request.args, pack]
        env = dict(entry.split("=", 1) for entry in request.env if "=" in entry)
        with self._child(command, env, cwd=pack, output=subprocess.PIPE) as plugin:
            context.add_callback(lambda: _stop(plugin))
            for name, data in _chunks(plugin):
                if name == "stdout":
                    yield language_pb2.RunPluginResponse(stdout=data)
                else:
                    yield language_pb2.RunPluginResponse(stderr=data)
            yield language_pb2.RunPluginResponse(exitcode=plugin.wait())

    def Cancel(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.stop()
        return Empty()

    def stop(self) -> None:
        """End every program and plugin that still runs."""
        with self._lock:
            children = list(self._children)
        for child in children:
            _stop(child)

    @contextmanager
    def _child(
        self, command: list[str], env: dict[str, str], cwd: str | None = None, output: int | None = None
    ) -> Iterator[subprocess.Popen[bytes]]:
        child = subprocess.Popen(
            bound(command),
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        with self._lock:
            self._children.add(child)
        try:
            yield child
        finally:
            _stop(child)
            with self._lock:
                self._children.discard(child)


def _chunks(process: subprocess.Popen[bytes]) -> Iterator[tuple[str, bytes]]:
    """(stream name, bytes) as they come, until both streams have ended."""
    ready: queue.Queue[tuple[str, bytes]] = queue.Queue()

    def read(name: str, stream: IO[bytes]) -> None:
        for data in iter(lambda: os.read(stream.fileno(), 65536), b""):
            ready.put((name, data))
        ready.put((name, b""))

    streams = {"stdout": process.stdout, "stderr": process.stderr}
    for name, stream in streams.items():
        threading.Thread(target=read, args=(name, stream), daemon=True).start()
    ended = 0
    while ended < len(streams):
        name, data = ready.get()
        if data:
            yield name, data
        else:
            ended += 1


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and all it started, politely first; nothing happens if it has ended."""
    for number in (signal.SIGTERM, signal.SIGKILL):  # an interrupt would make Python print where it was
        if process.poll() is not None:
            return
        try:
            os.killpg(process.pid, number)
            process.wait(STOP_GRACE_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def serve(host: LanguageHost) -> tuple[grpc.Server, int]:
    """Serve on a free loopback port."""
    limits = [("grpc.max_receive_message_length", MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(max_workers=8), options=limits)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def main() -> int:
    parser = argparse.ArgumentParser(prog="pulumi-language-python")
    parser.add_argument("--executor", type=Path, required=True)
    parser.add_argument("engine_address")
    asked, _ = parser.parse_known_args()  # the engine adds its logging flags
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    host = LanguageHost(asked.executor, asked.engine_address)
    server, port = serve(host)
    engine = os.getppid()  # before it is told the port, after which it may go at any moment
    print(port, flush=True)
    while not ended.wait(PARENT_INTERVAL_SECONDS) and os.getppid() == engine:
        pass
    host.stop()
    server.stop(grace=None).wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())
