"""XID errors as NVML's events tell them, and how they and the kernel log's become one count.

NVML misses some codes (79, 119 and 120 until 2024 at least: NVIDIA/DCGM 162), and the kernel log may be closed to the
agent, so both are read. Written against nvidia-ml-py 13 and run through a stand-in of it; no GPU has run it yet.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .xid import Xid

MOST_AT_ONCE = 1000  # events of one look: whatever a driver in trouble says, a scrape ends
SAME_SECONDS = 60.0  # both sources are read at each scrape; what one says later than that is another event


def kernels_place(bus_id: str) -> str:
    """NVML's ``00000000:3B:00.0`` as the kernel writes it: ``0000:3b:00``; another text stays as it is."""
    domain, _, rest = bus_id.rpartition(".")[0].partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest.lower()}"
    except ValueError:
        return bus_id


@dataclass
class NvmlXids:
    """New XIDs since the last call of `new`, which never waits."""

    module: Any
    events: Any  # NVML's event set

    @classmethod
    def open(cls, module: Any = None) -> NvmlXids | None:
        """Registers for all GPUs; None where neither driver nor device tells of XIDs. NVML must be initialised."""
        if module is None:
            import pynvml as module
        if not hasattr(module, "nvmlEventSetCreate"):
            return None
        try:
            events = module.nvmlEventSetCreate()
        except module.NVMLError:
            return None
        registered = 0
        with contextlib.suppress(module.NVMLError):
            for index in range(module.nvmlDeviceGetCount()):
                with contextlib.suppress(module.NVMLError):  # this device does not tell
                    handle = module.nvmlDeviceGetHandleByIndex(index)
                    module.nvmlDeviceRegisterEvents(handle, module.nvmlEventTypeXidCriticalError, events)
                    registered += 1
        opened = cls(module, events)
        if registered:
            return opened
        opened.close()
        return None

    def new(self) -> list[Xid]:
        found = []
        for _ in range(MOST_AT_ONCE):
            try:
                data = self.module.nvmlEventSetWait_v2(self.events, 0)
            except self.module.NVMLError:  # the time-out, which is: nothing new
                break
            if data.eventType == self.module.nvmlEventTypeXidCriticalError:
                found.append(Xid(self._place(data.device), int(data.eventData)))
        return found

    def close(self) -> None:
        with contextlib.suppress(self.module.NVMLError):
            self.module.nvmlEventSetFree(self.events)

    def _place(self, device: Any) -> str:
        try:
            text = self.module.nvmlDeviceGetPciInfo(device).busId
        except self.module.NVMLError:  # the GPU is lost: an event of an unknown place is still an event
            return "unknown"
        return kernels_place(text.decode() if isinstance(text, bytes) else text)


@dataclass(frozen=True)
class _Told:
    source: str
    xid: Xid
    at: float


@dataclass
class XidTally:
    """Each XID once, though two sources tell of it. Within one source nothing is the same: it says each once."""

    _unmatched: list[_Told] = field(default_factory=list)

    def take(self, source: str, xids: Iterable[Xid], now: float) -> list[Xid]:
        """Those that the other source has not told already; ``now`` in seconds of any steady clock."""
        self._unmatched = [told for told in self._unmatched if now - told.at <= SAME_SECONDS]
        new = []
        for xid in xids:
            twin = next((t for t in self._unmatched if t.source != source and _same(t.xid, xid)), None)
            if twin is not None:
                self._unmatched.remove(twin)
            else:
                self._unmatched.append(_Told(source, xid, now))
                new.append(xid)
        return new


def _same(one: Xid, other: Xid) -> bool:
    """A lost GPU's place is known to the kernel only."""
    places = {one.pci_bus_id, other.pci_bus_id}
    return one.code == other.code and (len(places) == 1 or "unknown" in places)
