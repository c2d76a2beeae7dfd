"""How long the pure part takes: settings judged, groups planned, user data and documents rendered, cost estimated."""

from __future__ import annotations

import hashlib
import statistics
import time
from dataclasses import dataclass
from pathlib import Path

from components.bootstrap.boot_plan import plan_boot
from components.bootstrap.release import Release, ReleaseFile
from components.compute.plan import plan_group
from components.cost.estimate import estimate
from components.settings import load

from .stacks import namespace, with_groups

GROUPS = 200
LIMIT_SECONDS = 1.0


@dataclass(frozen=True)
class Timing:
    """Seconds of the same work done several times."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def spread(self) -> str:
        return f"{min(self.seconds):.2f} to {max(self.seconds):.2f}"


def plan_all(groups: int) -> int:
    """Plan a stack of so many groups, from the parsed file to its cost; the number of interfaces planned."""
    settings = load("bench", namespace(with_groups(groups)))
    tar = ReleaseFile(Path("trainer.tar"), hashlib.sha256(b"trainer").hexdigest())
    release = Release(version="1", trainer={"cp312": tar, "host": tar}, torch={"cp312": tar})
    plans = [plan_group(settings, group) for group in settings.gpu_groups]
    for plan in plans:
        plan_boot(settings, plan, release)
    estimate(settings, at_max=True)
    return sum(len(plan.interfaces) for plan in plans)


def measure(rounds: int = 5) -> Timing:
    plan_all(2)  # imports and data files are read once in a program's life
    taken: list[float] = []
    for _ in range(rounds):
        before = time.perf_counter()
        plan_all(GROUPS)
        taken.append(time.perf_counter() - before)
    return Timing(tuple(taken))
