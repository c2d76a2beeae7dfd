"""The stand-in for pynvml with its XID events."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

from tests.trainer.nvml_fake import NOT_SUPPORTED, FakeNvml, Gpu, NVMLError

TIMEOUT = 10


class Nvml(FakeNvml):
    """With XID events: `happen` makes one, and `deaf` is a driver that tells of none."""

    nvmlEventTypeXidCriticalError = 8

    def __init__(self, gpus: list[Gpu], deaf: bool = False) -> None:
        super().__init__(gpus)
        self.deaf = deaf
        self.told: deque[Any] = deque()
        self.registered: list[Gpu] = []

    def happen(self, gpu: int, code: int) -> None:
        self.told.append(SimpleNamespace(device=self.gpus[gpu], eventType=8, eventData=code))

    def nvmlEventSetCreate(self) -> object:
        return object()

    def nvmlEventSetFree(self, events: object) -> None:
        self.registered.clear()

    def nvmlDeviceRegisterEvents(self, gpu: Gpu, kinds: int, events: object) -> None:
        if self.deaf:
            raise NVMLError(NOT_SUPPORTED)
        self.registered.append(gpu)

    def nvmlEventSetWait_v2(self, events: object, timeout_ms: int) -> Any:
        assert timeout_ms == 0, "a scrape waits for nothing"
        if not self.told:
            raise NVMLError(TIMEOUT)
        return self.told.popleft()
