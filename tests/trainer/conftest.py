from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from trainer.store import Store

from tests.trainer.kit import Bench, new_bucket, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[None]:
    with s3_server():
        yield


@pytest.fixture
def bench(s3: None, tmp_path: Path) -> Bench:
    """An empty bucket and a folder."""
    return Bench(tmp_path, new_bucket(), Store())


@pytest.fixture
def trained(bench: Bench) -> Bench:
    """A bench whose dataset `numbers@v1` is published and synced."""
    bench.publish()
    return bench
