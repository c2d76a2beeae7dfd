"""The reverse proxy, HTTP/1.1, from nodes to the AWS emulation: its listening sockets and their threads."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Sequence
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from .control import RuleFile
from .proxy import Passage, Way

HOST = "127.0.0.1"
BACKLOG = 128


class Gateway:
    """`with Gateway(upstream, state) as gateway: boto3.client("s3", endpoint_url=gateway.endpoint)`.

    `upstream`: URL of the AWS emulation. `state`: folder for rules and the log of injected faults. Listens on
    any free port of loopback unless it is given listening sockets, which it then owns.
    """

    def __init__(self, upstream: str, state: Path, listeners: Sequence[socket.socket] = ()):
        found = urlsplit(upstream)
        if found.scheme != "http" or not found.hostname:
            raise ValueError(f"upstream is {upstream!r}; an address such as http://127.0.0.1:4566")
        self._way = Way((found.hostname, found.port or 80), RuleFile(state), threading.Event())
        self._listeners = list(listeners)
        self._exits = contextlib.ExitStack()
        self._connections: set[socket.socket] = set()

    @property
    def endpoint(self) -> str:
        """Of the first listening socket."""
        host, port = self._listeners[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def __enter__(self) -> Gateway:
        if not self._listeners:
            self._listeners.append(socket.create_server((HOST, 0), backlog=BACKLOG))
        self._exits.callback(self._end_connections)
        for listener in self._listeners:
            server = _Server(self._way, listener, self._connections)
            thread = threading.Thread(target=server.serve_forever, daemon=True, name="gateway")
            thread.start()
            self._exits.callback(server.server_close)
            self._exits.callback(thread.join, 5)
            self._exits.callback(server.shutdown)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _end_connections(self) -> None:
        self._way.stopping.set()
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, way: Way, listener: socket.socket, connections: set[socket.socket]):
        super().__init__(listener.getsockname()[:2], partial(Passage, way), bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self._connections = connections

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a node that went away is none of ours
            super().handle_error(request, client_address)
