"""The reverse proxy: HTTP/1.1 from nodes to the AWS emulation, with the faults of the rules on the way.

Requests and answers pass unchanged, Host header and path included, since requests are signed. Bodies are streamed.
Each connection of a node has one of its own to the emulation.
"""

from __future__ import annotations

import contextlib
import http.client
import select
import socket
import struct
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from . import bodies
from .control import RuleFile
from .rules import Asked, Rule, signed_service
from .s3_errors import ERRORS, UNAVAILABLE, Answer, answer

HOST = "127.0.0.1"
UPSTREAM_SECONDS = 120.0  # longer than any client of the trainer waits
IDLE_SECONDS = 300.0  # of a kept connection
BACKLOG = 128
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST


class _Hangup(Exception):
    """The connection to the node is reset."""


class Gateway:
    """`with Gateway(upstream, state) as gateway: boto3.client("s3", endpoint_url=gateway.endpoint)`.

    `upstream`: URL of the AWS emulation. `state`: folder for rules and the log of injected faults. Listens on
    any free port of loopback unless it is given listening sockets, which it then owns.
    """

    def __init__(self, upstream: str, state: Path, listeners: Sequence[socket.socket] = ()):
        found = urlsplit(upstream)
        if found.scheme != "http" or not found.hostname:
            raise ValueError(f"upstream is {upstream!r}; an address such as http://127.0.0.1:4566")
        self.upstream = (found.hostname, found.port or 80)
        self.rules = RuleFile(state)
        self.stopping = threading.Event()
        self._listeners = list(listeners)
        self._exits = contextlib.ExitStack()
        self.connections: set[socket.socket] = set()

    @property
    def endpoint(self) -> str:
        """Of the first listening socket."""
        host, port = self._listeners[0].getsockname()[:2]
        return f"http://{host}:{port}"

    def __enter__(self) -> Gateway:
        if not self._listeners:
            self._listeners.append(socket.create_server((HOST, 0), backlog=BACKLOG))
        for listener in self._listeners:
            server = _Server(self, listener)
            thread = threading.Thread(target=server.serve_forever, daemon=True, name="gateway")
            thread.start()
            self._exits.callback(server.server_close)
            self._exits.callback(thread.join, 5)
            self._exits.callback(server.shutdown)
        self._exits.callback(self._end_connections)
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def _end_connections(self) -> None:
        self.stopping.set()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, gateway: Gateway, listener: socket.socket):
        super().__init__(listener.getsockname()[:2], _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.gateway = gateway

    def process_request(self, request: Any, client_address: Any) -> None:
        self.gateway.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.gateway.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):  # a node that went away is none of ours
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.gateway = self.server.gateway
        self.node = str(self.client_address[0])
        self._upstream: http.client.HTTPConnection | None = None
        self._body_awaits_continue = False

    def handle(self) -> None:
        try:
            if self.gateway.rules.refuses(self.node):
                raise _Hangup
            super().handle()
        except _Hangup:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            socket.close(self.connection.detach())
        finally:
            self._drop_upstream()

    def handle_expect_100(self) -> bool:
        """Not at once: S3 refuses a request before its body is sent."""
        self._body_awaits_continue = True
        return True

    def log_message(self, format: str, *args: Any) -> None:
        pass  # nodes poll several times a second

    def _answer(self) -> None:
        target = self.requestline.split()[1]  # not self.path, in which a leading // is one /
        asked = Asked(
            self.node, self.command, target, signed_service(self.headers.get("Authorization", ""), target)
        )
        if self.gateway.rules.refuses(self.node, asked.method, target):
            raise _Hangup
        rule = self.gateway.rules.choose(asked)
        if rule is not None and rule.kind == "reset":
            raise _Hangup
        if rule is not None and rule.kind in ERRORS:
            self._refuse(answer(ERRORS[rule.kind], datetime.now(timezone.utc)))
            return
        if rule is not None and rule.kind == "delay":
            self.gateway.stopping.wait(rule.seconds)
        self._pass_on(asked, rule)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_OPTIONS = _answer

    # --- to the emulation

    def _pass_on(self, asked: Asked, rule: Rule | None) -> None:
        body = self._request_body()
        has_body = body is not None
        if body is not None and rule is not None:
            body = self._harmed(rule, body, self._request_length(), self._is_aws_chunked())
        try:
            upstream = self._connect()
            self._send_head(upstream, asked.target)
        except OSError:
            self._drop_upstream()
            self._unavailable(asked)
            return
        try:
            if body is not None:
                self._send_body(upstream, body)
            found = upstream.getresponse()
        except bodies.BodyEnded:
            raise _Hangup from None  # of the node, or cut by a rule: the emulation sees an upload that broke off
        except (OSError, http.client.HTTPException):
            raise _Hangup from None  # the emulation may have done it or not: as when AWS hangs up
        self._send_back(found, None if has_body and rule and rule.kind != "slow" else rule)

    def _connect(self) -> http.client.HTTPConnection:
        """A kept connection that the emulation has not closed meanwhile, or a new one."""
        kept = self._upstream
        if kept is not None and kept.sock is not None and not select.select([kept.sock], [], [], 0)[0]:
            return kept
        self._drop_upstream()
        self._upstream = http.client.HTTPConnection(*self.gateway.upstream, timeout=UPSTREAM_SECONDS)
        self._upstream.connect()
        return self._upstream

    def _drop_upstream(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None

    def _send_head(self, upstream: http.client.HTTPConnection, target: str) -> None:
        upstream.putrequest(self.command, target, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() not in HOP_BY_HOP:
                upstream.putheader(name, value)
        if self._is_chunked():
            upstream.putheader("Transfer-Encoding", "chunked")
        upstream.endheaders()

    def _send_body(self, upstream: http.client.HTTPConnection, body: Iterable[bytes]) -> None:
        self._ask_for_body()
        for piece in bodies.chunked(body) if self._is_chunked() else body:
            self._check_outage()
            upstream.send(piece)

    # --- the request's body

    def _request_length(self) -> int | None:
        return None if self._is_chunked() else int(self.headers.get("Content-Length") or 0)

    def _is_chunked(self) -> bool:
        return "chunked" in self.headers.get("Transfer-Encoding", "").lower()

    def _is_aws_chunked(self) -> bool:
        return "aws-chunked" in self.headers.get("Content-Encoding", "").lower()

    def _request_body(self) -> Iterator[bytes] | None:
        length = self._request_length()
        if length is None:
            return bodies.of_chunks(self.rfile)  # type: ignore[arg-type]
        return bodies.of_length(self.rfile, length) if length else None  # type: ignore[arg-type]

    def _ask_for_body(self) -> None:
        if self._body_awaits_continue:
            self._body_awaits_continue = False
            self.send_response_only(100)
            self.end_headers()

    def _harmed(
        self, rule: Rule, body: Iterator[bytes], length: int | None, aws_chunked: bool = False
    ) -> Iterator[bytes]:
        if rule.kind == "slow":
            return bodies.slowed(body, rule.bytes_per_second, self.gateway.stopping.wait)
        if rule.kind == "truncated":
            return bodies.cut(body, length // 2 if length else 1)
        if rule.kind == "corrupted":
            return bodies.corrupted_data(body) if aws_chunked else bodies.corrupted(body, (length or 0) // 2)
        return body

    # --- back to the node

    def _send_back(self, found: http.client.HTTPResponse, rule: Rule | None) -> None:
        self.send_response_only(found.status, found.reason)
        for name, value in found.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        length = found.getheader("Content-Length")
        without = self.command == "HEAD" or found.status in (204, 304)
        if found.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif length is None and not without:
            self.close_connection = True
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if without:
            found.read()
            return
        size = int(length) if length is not None else None
        try:
            body = bodies.of_length(found, size) if size is not None else _to_the_end(found)
            if rule is not None:
                body = self._harmed(rule, body, size)
            for piece in bodies.chunked(body) if found.chunked else body:
                self._check_outage()
                self.wfile.write(piece)
            found.read()
        except (bodies.BodyEnded, http.client.HTTPException):
            self._drop_upstream()
            self.close_connection = True  # what was sent arrives, then the connection ends

    def _refuse(self, refusal: Answer) -> None:
        """Answer in S3's place; a body that is under way is taken off the line, so that the answer is read."""
        if self._body_awaits_continue:
            self._body_awaits_continue = False
            self.close_connection = True  # the client may send the body nevertheless
        elif (body := self._request_body()) is not None:
            try:
                for _ in body:
                    self._check_outage()
            except bodies.BodyEnded:
                raise _Hangup from None
        if refusal.status >= 500:
            self.close_connection = True  # as S3 does
        self.send_response_only(refusal.status)
        for name, value in refusal.headers:
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(refusal.body)

    def _unavailable(self, asked: Asked) -> None:
        """The emulation is away, and nothing of the request was done: SDKs try 503 again."""
        if asked.service == "s3":
            self._refuse(answer(UNAVAILABLE, datetime.now(timezone.utc)))
        else:
            self._refuse(Answer(503, [("Content-Length", "0")], b""))

    def _check_outage(self) -> None:
        if self.gateway.rules.refuses(self.node, self.command, self.path):
            raise _Hangup


def _to_the_end(found: http.client.HTTPResponse) -> Iterator[bytes]:
    while piece := found.read1(bodies.PIECE_BYTES):
        yield piece
