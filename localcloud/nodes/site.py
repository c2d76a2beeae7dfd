"""What all nodes of a driver have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHUTDOWN_SECONDS = 15.0  # from SIGTERM to SIGKILL, as a machine that shuts down


@dataclass(frozen=True)
class Site:
    local: Path  # .local, absolute
    image_dir: Path  # stands for the machine image's /opt/pytorch
    metadata_mock: Path
    endpoint: str  # of the AWS API, as the driver reaches it
    region: str
    account_id: str
    extra_environment: dict[str, str] = field(default_factory=dict)
    node_endpoint: str = ""  # of the AWS API, as nodes are told; empty: the same
    metrics_port: int = 9400

    @property
    def nodes(self) -> Path:
        return self.local / "nodes"
