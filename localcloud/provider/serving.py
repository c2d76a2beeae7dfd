"""A provider package as a plugin process: prints its port, serves until SIGINT or SIGTERM, exits quietly."""

from __future__ import annotations

import os
import signal
import sys
from concurrent import futures
from importlib import metadata
from threading import Event

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from .service import Package, Servicer

_MAX_MESSAGE_BYTES = 400 * 1024 * 1024  # the engine's own limit
_ENGINE_INTERVAL_SECONDS = 1.0
_FINISH_SECONDS = 15.0


def start(package: Package, engine_address: str | None = None) -> tuple[grpc.Server, int]:
    """A running server on a free loopback port."""
    limits = [("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES), ("grpc.max_send_message_length", -1)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=16), options=limits)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(package, engine_address), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    return server, port


def sdk_version(distribution: str) -> str:
    """The version to report: the installed SDK's, since the engine wants the plugin at least as new as that."""
    return metadata.version(distribution)


def main(package: Package) -> int:
    """The engine's address is the first argument, where there is an engine."""
    stop = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    server, port = start(package, sys.argv[1] if len(sys.argv) > 1 else None)
    engine = os.getppid()  # before it is told the port, after which it may go at any moment
    print(port, flush=True)
    while not stop.wait(_ENGINE_INTERVAL_SECONDS) and os.getppid() == engine:
        pass  # an engine that was killed leaves no plugin behind
    server.stop(grace=_FINISH_SECONDS).wait()  # what is being created is finished and recorded
    return 0
