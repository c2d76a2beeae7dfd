"""A fault of the configuration, and all of them in one message."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

NAMESPACE = "gpu-training"

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Fault:
    """What is wrong where, what would be right, and the nearest right value where one comes close."""

    path: Path
    wrong: str
    remedy: str
    nearest: str | None = None

    def __str__(self) -> str:
        hint = f" (nearest match: {self.nearest})" if self.nearest else ""
        return f"{config_path(self.path)}: {self.wrong}; {self.remedy}{hint}"


class SettingsError(ValueError):
    """The configuration has faults; the text lists all of them, one a line."""

    def __init__(self, stack: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        lines = "".join(f"\n  {fault}" for fault in self.faults)
        super().__init__(f"{count} in the configuration of stack '{stack}':{lines}")


def config_path(path: Path) -> str:
    """The path as Pulumi spells it: ``gpu-training:gpuGroups[1].image.amiId``, ``gpu-
    training:tags["aws:x"]``.
    """
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return f"{NAMESPACE}:{text}"
