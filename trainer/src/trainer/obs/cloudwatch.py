"""The agent's log lines in the stack's CloudWatch log group, so that they outlive the node.

A thread sends them every few seconds. Logs never hold training up: what cannot be sent is kept in a bounded queue and
dropped from its old end.
"""

from __future__ import annotations

import operator
import sys
import threading
import time
from collections import deque
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

FLUSH_SECONDS = 5.0
KEPT_LINES = 10_000
BATCH_LINES = 100
LINE_CHARACTERS = 8_000  # with the batch: below PutLogEvents' limit of 1 MiB
CLOSE_SECONDS = 10.0


class LogShipper:
    """``write`` takes whole lines from any thread; ``close`` sends what is left, within a limit."""

    def __init__(self, client: Any, log_group: str, stream: str) -> None:
        self._client = client
        self._where = {"logGroupName": log_group, "logStreamName": stream}
        self._lines: deque[tuple[int, str]] = deque(maxlen=KEPT_LINES)
        self._created = False
        self._told = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._loop, daemon=True, name="log-shipper")
        self._thread.start()

    @classmethod
    def connect(cls, region: str, log_group: str, stream: str) -> LogShipper:
        config = Config(
            retries={"mode": "standard", "total_max_attempts": 3}, connect_timeout=5, read_timeout=10
        )
        return cls(boto3.client("logs", region_name=region, config=config), log_group, stream)

    def write(self, line: str) -> None:
        if line.strip():
            self._lines.append((time.time_ns() // 1_000_000, line.rstrip()[:LINE_CHARACTERS]))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(timeout=CLOSE_SECONDS)

    def _loop(self) -> None:
        while not self._stop.wait(FLUSH_SECONDS):
            self._flush()
        self._flush()

    def _flush(self) -> None:
        while self._lines:
            batch = [self._lines[place] for place in range(min(BATCH_LINES, len(self._lines)))]
            try:
                self._send(batch)
            except (ClientError, BotoCoreError) as error:
                if not self._told:  # not through the logger, which would write here again
                    why = " ".join(str(error).split())
                    print(f"log lines cannot be sent to CloudWatch: {why}", file=sys.stderr)
                self._told = True
                return
            for _ in batch:
                self._lines.popleft()

    def _send(self, batch: list[tuple[int, str]]) -> None:
        if not self._created:
            try:
                self._client.create_log_stream(**self._where)
            except ClientError as error:  # it is there where the agent was restarted
                if error.response["Error"]["Code"] != "ResourceAlreadyExistsException":
                    raise
            self._created = True
        events = [
            {"timestamp": at, "message": line} for at, line in sorted(batch, key=operator.itemgetter(0))
        ]
        self._client.put_log_events(**self._where, logEvents=events)
