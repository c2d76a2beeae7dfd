"""How a preview's time grows with the groups: the real engine with the policy pack, few groups and many in turn."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import yaml

from localcloud.engine.pulumi import Engine
from localcloud.toolchain import Failed, paths

from .planning import Timing
from .stacks import with_groups

FEW, MANY = 2, 20
LIMIT_RATIO = 1.5


def measure(rounds: int = 3) -> tuple[Timing, Timing]:
    """Previews with FEW and with MANY groups, one after the other, so that both meet the same machine."""
    few: list[float] = []
    many: list[float] = []
    with tempfile.TemporaryDirectory(prefix="gpu-training-bench-") as folder:
        _preview(Path(folder) / "warm", FEW)  # the first one compiles and fills the caches
        for number in range(rounds):
            few.append(_preview(Path(folder) / f"few-{number}", FEW))
            many.append(_preview(Path(folder) / f"many-{number}", MANY))
    return Timing(tuple(few)), Timing(tuple(many))


def _preview(work: Path, groups: int) -> float:
    work.mkdir()
    stack_file = work / "Pulumi.bench.yaml"
    stack_file.write_text(yaml.safe_dump(with_groups(groups)))
    engine = Engine(paths(), "bench", work, "preview", stack_file=stack_file)
    before = time.perf_counter()
    outcome = engine.preview()
    if not outcome.ok:
        raise Failed(f"the preview of {groups} groups failed:\n{outcome.text[-3000:]}")
    return time.perf_counter() - before
