"""One connection of a node: its requests go to the AWS emulation, with the faults of the rules on the way.

Requests and answers pass unchanged, Host header and path included, since requests are signed. Bodies are streamed.
Each connection of a node has one of its own to the emulation.
"""

from __future__ import annotations

import http.client
import select
import socket
import struct
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler
from typing import Any

from . import bodies
from .control import RuleFile
from .rules import Asked, Rule, signed_service
from .s3_errors import ERRORS, UNAVAILABLE, Answer, answer

UPSTREAM_SECONDS = 120.0  # longer than any client of the trainer waits
IDLE_SECONDS = 300.0  # of a kept connection
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "transfer-encoding", "upgrade"}
RESET = struct.pack("ii", 1, 0)  # SO_LINGER with no time: closing sends RST


@dataclass(frozen=True)
class Way:
    """What all connections of a gateway share."""

    upstream: tuple[str, int]
    rules: RuleFile
    stopping: threading.Event


class Hangup(Exception):
    """The connection to the node is reset."""


class Passage(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_SECONDS
    disable_nagle_algorithm = True

    def __init__(self, way: Way, request: Any, client_address: Any, server: Any) -> None:
        self.way = way
        self.node = str(client_address[0])
        self._upstream: http.client.HTTPConnection | None = None
        self._body_awaits_continue = False
        super().__init__(request, client_address, server)

    def handle(self) -> None:
        try:
            if self.way.rules.refuses(self.node):
                raise Hangup
            super().handle()
        except Hangup:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            socket.close(self.connection.detach())
        finally:
            self._drop_upstream()

    def handle_expect_100(self) -> bool:
        return True  # told when the body is wanted: S3 refuses a request before its body is sent

    def log_message(self, format: str, *args: Any) -> None:
        pass  # nodes poll several times a second

    def _answer(self) -> None:
        self._body_awaits_continue = self.headers.get("Expect", "").lower() == "100-continue"
        target = self.requestline.split()[1]  # not self.path, in which a leading // is one /
        asked = Asked(
            self.node, self.command, target, signed_service(self.headers.get("Authorization", ""), target)
        )
        if self.way.rules.refuses(self.node, asked.method, target):
            raise Hangup
        rule = self.way.rules.choose(asked)
        if rule is not None and rule.kind == "reset":
            raise Hangup
        if rule is not None and rule.kind in ERRORS:
            self._refuse(answer(ERRORS[rule.kind], datetime.now(timezone.utc)))
            return
        if rule is not None and rule.kind == "delay":
            self.way.stopping.wait(rule.seconds)
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
        except (OSError, http.client.HTTPException):
            # The node, a rule or the emulation ended it: an upload that broke off, or nobody knows whether it was done.
            raise Hangup from None
        self._send_back(found, None if has_body and rule and rule.kind != "slow" else rule)

    def _connect(self) -> http.client.HTTPConnection:
        """A kept connection that the emulation has not closed meanwhile, or a new one."""
        kept = self._upstream
        if kept is not None and kept.sock is not None and not select.select([kept.sock], [], [], 0)[0]:
            return kept
        self._drop_upstream()
        self._upstream = http.client.HTTPConnection(*self.way.upstream, timeout=UPSTREAM_SECONDS)
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
            return bodies.of_chunks(self.rfile)
        return bodies.of_length(self.rfile, length) if length else None

    def _ask_for_body(self) -> None:
        if self._body_awaits_continue:
            self._body_awaits_continue = False
            self.send_response_only(100)
            self.end_headers()

    def _harmed(
        self, rule: Rule, body: Iterator[bytes], length: int | None, aws_chunked: bool = False
    ) -> Iterator[bytes]:
        if rule.kind == "slow":
            return bodies.slowed(body, rule.bytes_per_second, self.way.stopping.wait)
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
        without = self.command == "HEAD" or found.status in (204, 304)
        if found.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif found.length is None and not without:
            self.close_connection = True
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if without:
            found.read()
            return
        body = _pieces(found)
        if rule is not None:
            body = self._harmed(rule, body, found.length)
        try:
            for piece in bodies.chunked(body) if found.chunked else body:
                self._check_outage()
                self.wfile.write(piece)
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
                raise Hangup from None
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
        if self.way.rules.refuses(self.node, self.command, self.path):
            raise Hangup


def _pieces(found: http.client.HTTPResponse) -> Iterator[bytes]:
    while piece := found.read(bodies.PIECE_BYTES):
        yield piece
    if found.length:
        raise bodies.BodyEnded(f"{found.length} bytes of the answer are missing")
