"""One emulation and its clients for a file's tests: loading a service's model takes longer than a test."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator

import pytest

from localcloud.aws.server import AwsServer
from localcloud.provider.kinds import Place
from localcloud.provider.realise import Clients, Realising, isolate
from tests.unit.emulated_stack import REGION, Stack, left_over


@pytest.fixture(scope="module")
def emulation() -> Iterator[Realising]:
    with pytest.MonkeyPatch.context() as patch, AwsServer() as aws:
        for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "NO_PROXY", "no_proxy"):
            patch.setenv(name, "")  # restored afterwards, whatever `isolate` writes
        # moto's state belongs to the whole process, and other tests have used it: this cloud begins empty.
        request = urllib.request.Request(f"{aws.endpoint}/moto-api/reset", method="POST")
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).close()
        isolate()
        account = Clients(aws.endpoint, REGION).account()
        yield Realising(aws.endpoint, Place(REGION, account, {"team": "x"}))


@pytest.fixture
def stack(emulation: Realising) -> Iterator[Stack]:
    """A stack in an empty account. When it is destroyed, none of it is found, and the account is empty again."""
    made = Stack(emulation)
    yield made
    assert [name for name in made.held if made.exists(name)] == made.standing()
    made.destroy()
    assert [name for name in made.held if made.exists(name)] == []
    assert left_over(made) == {}
