"""An account for the commands: moto in this process, and stack files of the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from moto import mock_aws

from components.settings import Settings, load
from ops.account import Account, open_account
from tests.unit.stack_files import minimal

ACCOUNT = "123456789012"  # moto's
PARAMETER = "/gpu-training/images/pytorch"


@contextmanager
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        yield


def settings_with(stack: str = "dev", group: dict[str, Any] | None = None, **changes: Any) -> Settings:
    config = {**minimal(), **changes}
    config["gpuGroups"][0].update(group or {})
    return load(stack, config)


def account_of(settings: Settings) -> Account:
    return open_account(settings)


def write_stack(folder: Path, text: str, stack: str = "dev") -> Path:
    path = folder / f"Pulumi.{stack}.yaml"
    path.write_text(text)
    return path


def write_minimal(folder: Path, stack: str = "dev", **changes: Any) -> Path:
    """A stack file with the smallest configuration, in the flow style that JSON is."""
    config = {**minimal(), **changes}
    lines = [f"  gpu-training:{key}: {json.dumps(value)}" for key, value in config.items()]
    return write_stack(folder, "\n".join(["config:", *lines]) + "\n", stack)
