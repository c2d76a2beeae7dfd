from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from trainer.store import Store

from tests.trainer.kit import Bench, new_bucket, s3_server

if TYPE_CHECKING:
    from tests.trainer.agent_kit import Cloud

CLOUDS = itertools.count(1)  # buckets and groups of two clouds never meet


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


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """The AWS emulation that a module's agents share."""
    from localcloud.aws.server import AwsServer

    with AwsServer(tick_seconds=0.05) as aws:
        yield aws.endpoint


@pytest.fixture
def make_cloud(
    endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], Cloud]]:
    """A group of so many instances with its bucket, in which a test starts real agents over fake workers."""
    from tests.trainer.agent_kit import REGION, cloud

    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "FAKE_WORLD": str(tmp_path / "world"),
    }.items():
        monkeypatch.setenv(name, value)
    with ExitStack() as stack:
        yield lambda nodes: stack.enter_context(cloud(endpoint, tmp_path, nodes, next(CLOUDS)))
