"""The event lines of one rank, see `trainer.contracts.worker.WorkerEvent`."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..contracts.worker import EventKind, WorkerEvent
from ..obs.logs import bind


class EventLog:
    """Appends whole lines and flushes each, so that the agent can follow the file while it grows. Any thread may."""

    def __init__(self, path: Path, listener: Callable[[WorkerEvent], None] | None = None) -> None:
        """``listener`` is told each event once it is written."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self.last_step: int | None = None  # finished by this rank
        self._listener = listener
        self._lock = threading.Lock()
        self._file = open(path, "a", encoding="utf-8")  # noqa: SIM115

    def write(self, kind: EventKind, **fields: Any) -> None:
        """``fields`` as WorkerEvent names them. NaN and infinity, which JSON does not know, become null."""
        plain = {name: _plain(value) for name, value in fields.items()}
        if kind == "step" and (fields.get("skipped") or not fields.get("non_finite")):
            self.last_step = fields["step"]
            bind(step=self.last_step)
        with self._lock:
            event = WorkerEvent(kind=kind, time=time.time(), **plain)
            self._file.write(event.to_line())
            self._file.flush()
            if self._listener is not None:
                self._listener(event)

    def close(self) -> None:
        self._file.close()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
