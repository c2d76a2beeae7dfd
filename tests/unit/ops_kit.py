"""An account for the commands: moto in this process, and stack files of the test's own."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from boto3 import Session
from moto import mock_aws
from moto.ec2.models import amis

from components.settings import Settings, load
from ops import account as account_module
from ops.account import Account, open_account
from tests.unit.stack_files import minimal

ACCOUNT = "123456789012"  # moto's
PARAMETER = "/gpu-training/images/pytorch"


IMAGE = {
    "ami_id": "ami-00000000000000001",
    "name": "Deep Learning OSS Nvidia Driver AMI GPU PyTorch 2.12 (Ubuntu 24.04) 20261005",
    "architecture": "x86_64",
    "root_device_name": "/dev/sda1",
    "root_device_type": "ebs",
    "virtualization_type": "hvm",
    "hypervisor": "xen",
    "image_type": "machine",
    "owner_id": "898082745236",
    "image_location": "amazon/x",
    "description": "",
    "platform": None,
    "public": True,
    "state": "available",
    "sriov": "simple",
    "creation_date": "2026-10-05T10:00:00.000Z",
}
GOOD, NEWER, OTHER_ROOT = "ami-00000000000000001", "ami-00000000000000002", "ami-00000000000000003"
IMAGES = (IMAGE, {**IMAGE, "ami_id": NEWER}, {**IMAGE, "ami_id": OTHER_ROOT, "root_device_name": "/dev/xvda"})


@contextmanager
def cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    # Three images of today instead of moto's 1301 of 2017, which take seconds.
    monkeypatch.setattr(amis, "AMIS", [dict(image) for image in IMAGES])
    monkeypatch.setenv("MOTO_AMIS_PATH", "set")
    # One session for all: it reads the large models of EC2's API once.
    monkeypatch.setattr(account_module.boto3, "Session", lambda **_: session())
    with mock_aws():
        yield


@cache
def session() -> Any:
    return Session(region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing")


def publish(ami_id: str, parameter: str = PARAMETER) -> None:
    """Make the parameter hold an image, as the platform team does."""
    session().client("ssm").put_parameter(Name=parameter, Value=ami_id, Type="String", Overwrite=True)


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
