"""Log lines as JSON on standard output, each with the run, the generation and the instance it speaks of."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from typing import Any, TextIO, cast

import structlog


class _Tee:
    """A file of two: standard output as it is now, and the sink."""

    def __init__(self, sink: Callable[[str], None] | None) -> None:
        self._sink = sink

    def write(self, text: str) -> None:
        sys.stdout.write(text)
        if self._sink is not None:
            self._sink(text)

    def flush(self) -> None:
        sys.stdout.flush()


def configure(sink: Callable[[str], None] | None = None, **context: Any) -> None:
    """Write one JSON object a line; ``context`` (instance, group) is part of each. ``sink`` gets the lines too."""
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(serializer=to_json),
        ],
        logger_factory=structlog.WriteLoggerFactory(file=cast(TextIO, _Tee(sink))),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.clear_contextvars()
    structlog.contextvars.bind_contextvars(**context)


def bind(**context: Any) -> None:
    """Add to the context of all later lines; a value of None takes the name out."""
    structlog.contextvars.unbind_contextvars(*(name for name, value in context.items() if value is None))
    structlog.contextvars.bind_contextvars(**{k: v for k, v in context.items() if v is not None})


def get_logger() -> Any:
    return structlog.get_logger()


def to_json(value: Any, **_: Any) -> str:
    """JSON proper: NaN and infinities, which JSON does not know, become null."""
    return json.dumps(_finite(value), default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
