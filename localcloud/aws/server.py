"""moto behind one port on loopback, with the additions applied and a clock of its own."""

from __future__ import annotations

import contextlib
import io
import os
import socket
import threading
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, final

from moto.autoscaling.models import autoscaling_backends
from moto.cloudwatch.models import cloudwatch_backends
from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import BaseWSGIServer, make_server

from . import groups
from .additions import applied
from .cloudwatch import evaluate_alarms

ACCOUNT_ID = "123456789012"
HOST = "127.0.0.1"
TICK_SECONDS = 0.25
POLL_SECONDS = 0.05  # how soon the server sees that it shall end
BACKLOG = 128


class Connections:
    """Those of one server, with requests under way: its end does not close them by itself."""

    def __init__(self) -> None:
        self._open: set[socket.socket] = set()
        self._over = False

    def add(self, connection: socket.socket) -> None:
        self._open.add(connection)
        if self._over:
            self._cut(connection)

    def discard(self, connection: socket.socket) -> None:
        self._open.discard(connection)

    def cut(self) -> None:
        """Those that are there and those whose threads have yet to begin."""
        self._over = True
        for connection in list(self._open):
            self._cut(connection)

    @staticmethod
    def _cut(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


class QuietHandler(MotoRequestHandler):
    """No line per request: nodes poll several times a second. Faults of the server still go to stderr."""

    connections: ClassVar[Connections]

    def setup(self) -> None:
        super().setup()
        self.connections.add(self.connection)

    def finish(self) -> None:
        self.connections.discard(self.connection)
        super().finish()

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
        self._door = threading.Lock()  # held while the server comes, goes or pauses
        self._server: BaseWSGIServer | None = None
        self._exits = contextlib.ExitStack()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def __enter__(self) -> AwsServer:
        if AwsServer._running is not None:
            raise RuntimeError("one AwsServer a process: moto's state is global")
        listener = self._listener or socket.create_server((HOST, 0), backlog=BACKLOG)
        AwsServer._running = self
        self._exits.callback(setattr, AwsServer, "_running", None)
        self._exits.callback(moto_api_backend.reset)
        self._exits.enter_context(applied())
        self._exits.enter_context(_environment("MOTO_IAM_LOAD_MANAGED_POLICIES", "true"))
        self.port = listener.getsockname()[1]
        with self._door:
            self._open(listener)
        ticker = threading.Thread(target=self._tick, daemon=True, name="aws-tick")
        ticker.start()
        self._exits.callback(ticker.join, 5)
        self._exits.callback(self._leave)
        self._exits.callback(self._stop.set)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def pause(self, seconds: float) -> None:
        """Be gone for a while: connections are cut and new ones refused, then it is back on the same port.

        This is how a restart looks to nodes. It is no restart: moto keeps its state in memory only and would come
        back empty, so the process goes on, and with it the groups' own clocks. A request under way may have had
        its effect or not, and nobody is told. Returns when it is back, or at once when the server ends.
        """
        with self._door:
            if self._server is None:
                return
            self._close()
            held = _bound(self.port)  # bound without listening: refused, and nobody else gets the port
            if self._stop.wait(seconds):
                held.close()
                return
            held.listen(BACKLOG)
            self._open(held)

    def _open(self, listener: socket.socket) -> None:
        connections = Connections()
        handler = type("Handler", (QuietHandler,), {"connections": connections})
        app = OneAtATime(DomainDispatcherApplication(create_backend_app), self._lock)
        server = make_server(
            HOST, self.port, app, threaded=True, request_handler=handler, fd=listener.fileno()
        )
        listener.close()  # the server has its own duplicate of the descriptor
        thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True, name="aws")
        thread.start()
        self._server, self._connections, self._thread = server, connections, thread

    def _close(self) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._thread.join(5)  # it closes the listening socket as the last it does
        self._server = None
        self._connections.cut()

    def _leave(self) -> None:
        with self._door:
            if self._server is not None:
                self._close()

    def _tick(self) -> None:
        while not self._stop.wait(self.tick_seconds):
            with self._lock:
                for scaling in [r for account in autoscaling_backends.values() for r in account.values()]:
                    for group in list(scaling.autoscaling_groups.values()):
                        groups.reconcile(group)
                for metrics in [r for account in cloudwatch_backends.values() for r in account.values()]:
                    evaluate_alarms(metrics)


def _bound(port: int) -> socket.socket:
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((HOST, port))
    return held


@contextlib.contextmanager
def _environment(name: str, value: str) -> Any:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})
