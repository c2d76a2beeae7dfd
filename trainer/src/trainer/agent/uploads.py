"""A generation's files in the bucket: rank 0's events while it trains, every node's worker log at its end.

Events go in segments that end with a line: one that is full is never sent again, so that a long run's upload costs
what is new. Nothing leaves the node with a secret's value in it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from ..contracts import keys
from ..contracts.worker import events_file
from ..errors import StoreError
from ..obs.logs import get_logger
from .board import WORKER_LOG
from .node import Node
from .supervisor import Workers

LOG_BYTES = 4 << 20  # of a worker log that are kept, from its end
SEGMENT_BYTES = 1 << 20  # of events, and what its last line has more


@dataclass
class Logs:
    """Of one generation on this node. The methods are False where S3 did not take all."""

    node: Node
    workers: Workers
    _segment: int = 1  # the one that grows
    _begin: int = 0  # where it begins in the file
    _sent: int = 0  # bytes of the file that S3 has

    def events(self) -> bool:
        """Rank 0's events are the run's; other nodes have nothing to add. Nothing is sent where nothing is new."""
        path = events_file(self.workers.folder, 0)
        if self.workers.config.node_rank != 0 or not path.is_file():
            return True
        with open(path, "rb") as file:
            file.seek(self._begin)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        while self._begin + len(data) > self._sent:
            full = data.find(b"\n", SEGMENT_BYTES - 1) + 1
            part = data[:full] if full else data
            if not self._put(keys.events_segment(self._segment), part):
                return False
            self._sent = self._begin + len(part)
            if full:
                self._segment, self._begin, data = self._segment + 1, self._sent, data[full:]
        return True

    def worker_log(self) -> bool:
        path: Path = self.workers.folder / WORKER_LOG
        return not path.is_file() or self._put(WORKER_LOG, _end_of(path))

    def _put(self, name: str, data: bytes) -> bool:
        config = self.workers.config
        key = keys.run_log(config.run.name, config.generation.n, self.node.instance_id, name)
        try:
            self.node.board.put_text(key, self.workers.secrets.redact_bytes(data))
        except StoreError as error:
            get_logger().warning("log not uploaded", name=name, error=str(error))
            return False
        return True


def _end_of(log: Path) -> bytes:
    """Its last whole lines: a secret that the cut goes through would not be recognised."""
    with open(log, "rb") as file:
        cut = max(0, file.seek(0, os.SEEK_END) - LOG_BYTES)
        file.seek(cut)
        end = file.read(LOG_BYTES)
    return end.partition(b"\n")[2] if cut else end
