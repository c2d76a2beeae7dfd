"""moto behind one port on loopback, with the additions applied and a clock of its own."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, final

from moto.autoscaling.models import autoscaling_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

from . import groups
from .additions import applied
from .cloudwatch import evaluate_alarms

ACCOUNT_ID = "123456789012"
HOST = "127.0.0.1"
TICK_SECONDS = 0.25


class QuietHandler(MotoRequestHandler):
    """No line per request: nodes poll several times a second. Faults of the server still go to stderr."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


class OneAtATime:
    """WSGI middleware: moto's models know no threads, so requests run one after the other.

    The body is read before the turn begins, so that a slow client holds nobody up; conditional writes are
    atomic by this.
    """

    def __init__(self, app: Callable[..., Iterable[bytes]], lock: threading.RLock):
        self.app = app
        self.lock = lock

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        length = int(environ.get("CONTENT_LENGTH") or 0)
        if length:
            environ["wsgi.input"] = io.BytesIO(environ["wsgi.input"].read(length))
        with self.lock:
            return self.app(environ, start_response)


@final
class AwsServer:
    """The AWS API of the local cloud: `with AwsServer() as aws: boto3.client("s3", endpoint_url=aws.endpoint)`.

    Any credentials are accepted; everything belongs to account 123456789012. One server a process, since
    moto's state is global; the state starts empty and is gone at the end. Listens on any free port of loopback
    unless it is given a listening socket, which it then owns.
    """

    _running: AwsServer | None = None

    def __init__(self, listener: socket.socket | None = None, tick_seconds: float = TICK_SECONDS):
        self._listener = listener
        self.port = 0
        self.tick_seconds = tick_seconds
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._exits = contextlib.ExitStack()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> AwsServer:
        if AwsServer._running is not None:
            raise RuntimeError("one AwsServer a process: moto's state is global")
        listener = self._listener or socket.create_server((HOST, 0), backlog=128)
        AwsServer._running = self
        self._exits.callback(setattr, AwsServer, "_running", None)
        self._exits.callback(moto_api_backend.reset)
        self._exits.enter_context(applied())
        self._exits.enter_context(_environment("MOTO_IAM_LOAD_MANAGED_POLICIES", "true"))
        self.port = listener.getsockname()[1]
        app = OneAtATime(DomainDispatcherApplication(create_backend_app), self._lock)
        self._server = make_server(
            HOST, self.port, app, threaded=True, request_handler=QuietHandler, fd=listener.fileno()
        )
        listener.close()  # the server has its own duplicate of the descriptor
        for target in (self._server.serve_forever, self._tick):
            thread = threading.Thread(target=target, daemon=True, name=f"aws-{target.__name__}")
            thread.start()
            self._exits.callback(thread.join, 5)
        self._exits.callback(self._server.server_close)
        self._exits.callback(self._server.shutdown)
        self._exits.callback(self._stop.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _tick(self) -> None:
        while not self._stop.wait(self.tick_seconds):
            with self._lock:
                for scaling in [r for account in autoscaling_backends.values() for r in account.values()]:
                    for group in list(scaling.autoscaling_groups.values()):
                        groups.reconcile(group)
                for metrics in [r for account in cloudwatch_backends.values() for r in account.values()]:
                    evaluate_alarms(metrics)


@contextlib.contextmanager
def _environment(name: str, value: str) -> Any:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})
