"""The project's stack files as the program sees them, and the smallest configuration that has no fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def mapping_of(stack: str) -> dict[str, Any]:
    """The values of our namespace in a stack file; encrypted ones become the text "placeholder"."""
    config = yaml.safe_load((ROOT / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    return {key.partition(":")[2]: _plain(value) for key, value in config.items()}


def minimal() -> dict[str, Any]:
    """A fresh copy of the smallest sound configuration."""
    return {
        "region": "us-east-1",
        "allowedAccountIds": ["123456789012"],
        "network": {"availabilityZones": ["us-east-1a", "us-east-1b"]},
        "gpuGroups": [
            {
                "name": "trainers",
                "instanceTypes": ["g6.xlarge"],
                "maxNodes": 2,
                "image": {"profile": "dlami-pytorch-ubuntu-24.04", "amiId": "ami-0123456789abcdef0"},
            }
        ],
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return "placeholder" if value.keys() == {"secure"} else {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
