"""A run's events in the bucket, read on from where the last look ended: whoever watches a run pays for what is new."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..contracts import keys
from ..store import Store
from .steps import Part, ordered


@dataclass
class EventReader:
    store: Store
    bucket: str
    run: str
    _parts: dict[tuple[int, str], Part] = field(default_factory=dict)  # by generation and instance id
    _read: dict[str, int] = field(default_factory=dict)  # bytes of each segment that the parts have

    def look(self) -> list[Part]:
        """What rank 0 of each generation told so far, in order; raises StoreError."""
        for entry in self.store.list_objects(self.bucket, keys.run_logs(self.run)):
            read = self._read.get(entry.key, 0)
            if not keys.is_events_segment(entry.key) or entry.size_bytes <= read:
                continue
            fetched = self.store.get(self.bucket, entry.key)
            if fetched is None:
                continue
            generation, instance_id = entry.key.split("/")[-3:-1]
            whose = int(generation.removeprefix("gen-")), instance_id
            self._parts.setdefault(whose, Part(*whose)).take(fetched.body[read:].splitlines())
            self._read[entry.key] = len(fetched.body)
        return ordered(self._parts.values())
