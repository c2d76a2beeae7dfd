"""Fixtures that several files share."""

from __future__ import annotations

from pathlib import Path

import pytest

from components.bootstrap.user_data import BootVariables
from tests.unit.boot_bench import (
    Bench,
    minimal_release,
    publish,
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


@pytest.fixture
def ready(bench: Bench) -> BootVariables:
    """A bench on which everything that a node needs is in place."""
    return publish(bench, minimal_release(bench.folder))
