"""What a validator finds in the configuration, and all of it in one message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

NAMESPACE = "gpu-training"

Path = tuple[str | int, ...]
Level = Literal["error", "warning", "info"]
Check = TypeVar("Check", bound=Callable[..., Any])
_LEVEL = "validator_level"
_ESSENTIAL = "validator_is_essential"


@dataclass(frozen=True)
class Fault:
    """What is wrong where, what would be right, and the nearest right value where one comes close."""

    path: Path
    wrong: str
    remedy: str
    nearest: str | None = None
    # Who found it: a validator's id, or "shape" for faults of single keys and values. Level error: nothing is
    # declared; warning and info: told, and the stack goes on.
    validator: str = field(default="shape", compare=False)
    level: Level = field(default="error", compare=False)

    def __str__(self) -> str:
        hint = f" (nearest match: {self.nearest})" if self.nearest else ""
        return f"{config_path(self.path)}: {self.wrong}; {self.remedy}{hint}"

    @property
    def told(self) -> str:
        """The line with the id under which the validator can be suppressed."""
        return str(self) if self.validator == "shape" else f"{self} [{self.validator}]"


def warning(check: Check) -> Check:
    """Marks a validator whose findings stop nothing: what AWS allows and few people want."""
    setattr(check, _LEVEL, "warning")
    return check


def info(check: Check) -> Check:
    """Marks a validator whose findings are for information."""
    setattr(check, _LEVEL, "info")
    return check


def essential(check: Check) -> Check:
    """Marks a validator that cannot be suppressed: without what it demands nothing can be planned."""
    setattr(check, _ESSENTIAL, True)
    return check


def is_essential(check: Callable[..., Any]) -> bool:
    return getattr(check, _ESSENTIAL, False)


def level_of(check: Callable[..., Any]) -> Level:
    return getattr(check, _LEVEL, "error")


def id_of(check: Callable[..., Any]) -> str:
    """The name under which a validator is told and suppressed: its function's, with dashes."""
    return check.__name__.replace("_", "-")


def named_twice(values: Sequence[str], path: Path, below: Path) -> Iterator[Fault]:
    """A fault for each value of a list that is there already; its place is between ``path`` and ``below``."""
    for place, value in enumerate(values):
        if value in values[:place]:
            yield Fault((*path, place, *below), f"'{value}' is there twice", "name each once")


class SettingsError(ValueError):
    """The configuration has faults; the text lists all of them, one a line."""

    def __init__(self, stack: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = "1 fault" if len(self.faults) == 1 else f"{len(self.faults)} faults"
        lines = "".join(f"\n  {fault.told}" for fault in self.faults)
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
