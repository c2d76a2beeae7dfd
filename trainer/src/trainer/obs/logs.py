"""Log lines as JSON, one object a line, each with the run, generation, rank and step that it speaks of.

The agent writes to standard output, a worker to standard error, which is its worker.log. What libraries tell through
Python's own logging takes the same form. The context is the process's, not a thread's: a line of the exporter's thread
speaks of the same run as one of the main loop.
"""

from __future__ import annotations

import json
import logging
import math
import sys
import threading
from collections.abc import Callable, Mapping
from types import NoneType
from typing import Any, Literal, TextIO, cast

import structlog

Stream = Literal["stdout", "stderr"]
FIRST = ("time", "level", "event", "instance", "group", "run", "generation", "rank", "step")

_lock = threading.Lock()
_context: Mapping[str, Any] = {}  # replaced as a whole, so that it is read without the lock
_redact: Callable[[str], str] | None = None


class _Tee:
    """A file of two: a standard stream as it is now, and the sink."""

    def __init__(self, stream: Stream, sink: Callable[[str], None] | None) -> None:
        self._stream = stream
        self._sink = sink

    def write(self, text: str) -> None:
        getattr(sys, self._stream).write(text)
        if self._sink is not None:
            self._sink(text)

    def flush(self) -> None:
        getattr(sys, self._stream).flush()


def configure(sink: Callable[[str], None] | None = None, stream: Stream = "stdout", **context: Any) -> None:
    """Write one JSON object a line; ``context`` (instance, group) is part of each. ``sink`` gets the lines too."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            _with_context,
            structlog.processors.JSONRenderer(serializer=to_json),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _Tee(stream, sink))),
        cache_logger_on_first_use=False,
    )
    global _context, _redact
    with _lock:
        _context, _redact = dict(context), None


def bind(**context: Any) -> None:
    """Add to the context of all later lines; a value of None takes the name out."""
    global _context
    with _lock:
        _context = {name: value for name, value in {**_context, **context}.items() if value is not None}


def hide(redact: Callable[[str], str]) -> None:
    """Every text of all later lines goes through ``redact`` first: whatever quotes a secret, it leaves no trace."""
    global _redact
    with _lock:
        _redact = redact


def get_logger() -> Any:
    return structlog.get_logger()


class _Forward(logging.Handler):
    """Python's own logging, line by line."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            get_logger().log(
                record.levelno, record.getMessage(), logger=record.name, exc_info=record.exc_info or None
            )
        except Exception:
            self.handleError(record)


def capture_logging(level: int) -> None:
    """From now on what libraries log or warn of takes our form, from ``level`` of `logging` on."""
    root = logging.getLogger()
    if not any(isinstance(handler, _Forward) for handler in root.handlers):
        root.addHandler(_Forward())
    root.setLevel(level)
    logging.captureWarnings(True)


def to_json(value: Any, **_: Any) -> str:
    """JSON proper: NaN and infinities, which JSON does not know, become null, and ``non_finite`` names them."""
    lost: list[str] = []

    def known(item: Any, path: str) -> Any:
        if isinstance(item, float) and not math.isfinite(item):
            lost.append(path)
            return None
        return item

    plain = _each(value, known)
    if lost and isinstance(plain, dict):
        plain["non_finite"] = lost
    return json.dumps(plain, default=str, allow_nan=False)


def _with_context(_logger: Any, _method: str, fields: Any) -> dict[str, Any]:
    """The line's own fields before those of the context; the ones that all lines have come first."""
    every = {**_context, **fields}
    ordered = {name: every.pop(name) for name in FIRST if name in every} | every
    redact = _redact
    if redact is None:
        return ordered
    # What is no number is written as its text: an exception may quote a secret as well.
    return _each(
        ordered, lambda item, _: item if isinstance(item, (int, float, NoneType)) else redact(str(item))
    )


def _each(value: Any, change: Callable[[Any, str], Any], path: str = "") -> Any:
    """Everything that is no dict and no list through ``change``, which gets it and its path."""
    below = f"{path}." if path else ""
    if isinstance(value, dict):
        return {str(key): _each(item, change, f"{below}{key}") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_each(item, change, f"{below}{place}") for place, item in enumerate(value)]
    return change(value, path)
