"""A machine for the self-check: files, commands and mounts as a test says, time that passes by sleeping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainer.selfcheck.view import Done, Host

Answer = Done | Callable[[], Done | None]
KERNEL = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder)\n"


@dataclass
class FakeHost(Host):
    files: dict[str, str] = field(default_factory=dict)
    commands: dict[str, Answer] = field(default_factory=dict)  # by the beginning of the command line
    mounts: set[str] = field(default_factory=set)
    sizes_mib: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)  # path -> why it cannot be opened
    variables: dict[str, str] = field(default_factory=dict)
    now: float = 0.0

    @property
    def environment(self) -> Mapping[str, str]:
        return self.variables

    def read(self, path: str) -> str | None:
        return self.files.get(path)

    def names(self, folder: str) -> list[str]:
        below = f"{folder.rstrip('/')}/"
        return sorted({path[len(below) :].split("/")[0] for path in self.files if path.startswith(below)})

    def exists(self, path: str) -> bool:
        return path in self.files or bool(self.names(path))

    def opens(self, path: str) -> str | None:
        return self.refused.get(path)

    def run(self, *command: str) -> Done | None:
        line = " ".join(command)
        for beginning, answer in self.commands.items():
            if line.startswith(beginning):
                return answer() if callable(answer) else answer
        return None

    def total_mib(self, path: str) -> float | None:
        return self.sizes_mib.get(path)

    def free_gib(self, path: str) -> float | None:
        mib = self.sizes_mib.get(path)
        return mib / 1024 if mib is not None else None

    def is_mount(self, path: str) -> bool:
        return path in self.mounts

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def gpu_host(gpus: int = 8, switches: int = 0, **more: object) -> FakeHost:
    """A node with its driver loaded and all device files there."""
    files = {"/proc/driver/nvidia/version": KERNEL, "/dev/nvidiactl": "", "/dev/nvidia-uvm": ""}
    for index in range(gpus):
        files |= pci(f"0000:{0x10 + index:02x}:00.0", "0x030200") | {f"/dev/nvidia{index}": ""}
    for index in range(switches):
        files |= pci(f"0000:{0x80 + index:02x}:00.0", "0x068000")
    return FakeHost(files=files, **more)  # type: ignore[arg-type]


def pci(place: str, kind: str, vendor: str = "0x10de") -> dict[str, str]:
    folder = f"/sys/bus/pci/devices/{place}"
    return {f"{folder}/vendor": f"{vendor}\n", f"{folder}/class": f"{kind}\n"}
