"""A generation's files in the bucket: rank 0's events while it trains, every node's worker log at its end.

Neither leaves the node with a secret's value in it.
"""

from __future__ import annotations

from pathlib import Path

from ..contracts import keys
from ..contracts.worker import events_file
from ..errors import StoreError
from ..obs.logs import get_logger
from .board import EVENTS, WORKER_LOG
from .node import Node
from .supervisor import Workers

LOG_BYTES = 4 << 20  # of a worker log that are kept, from its end


def events(node: Node, workers: Workers) -> bool:
    """Rank 0's events are the run's; other nodes have nothing to add. False where S3 did not take them."""
    path = events_file(workers.folder, 0)
    if workers.config.node_rank != 0 or not path.is_file():
        return True
    return _put(node, workers, EVENTS, path.read_bytes())


def worker_log(node: Node, workers: Workers) -> bool:
    path: Path = workers.folder / WORKER_LOG
    return not path.is_file() or _put(node, workers, WORKER_LOG, _end_of(path.read_bytes()))


def _end_of(log: bytes) -> bytes:
    """Its last whole lines: a secret that the cut goes through would not be recognised."""
    return log if len(log) <= LOG_BYTES else log[-LOG_BYTES:].partition(b"\n")[2]


def _put(node: Node, workers: Workers, name: str, data: bytes) -> bool:
    key = keys.run_log(workers.config.run.name, workers.config.generation.n, node.instance_id, name)
    try:
        node.board.put_text(key, workers.secrets.redact_bytes(data))
    except StoreError as error:
        get_logger().warning("log not uploaded", name=name, error=str(error))
        return False
    return True
