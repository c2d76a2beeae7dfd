"""What became of the disks, for the agent: root writes it, whoever misses a mount reads why."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field, ValidationError

from ..contracts.base import Document

REPORT = Path("/run/trainer-disks.json")


class DisksReport(Document):
    scratch: str  # one line
    failures: dict[str, str] = Field(default_factory=dict)  # mount point -> one line


def why_not_mounted(path: str, report: Path = REPORT) -> str:
    """One line on why nothing is mounted at a path or above it."""
    try:
        failures = DisksReport.from_json(report.read_bytes()).failures
    except (OSError, ValidationError):
        return "trainer-disks.service left no report (journalctl -u trainer-disks)"
    for mount_point, why in failures.items():
        if Path(path).is_relative_to(mount_point):
            return why
    return "trainer-disks.service did not mount it (journalctl -u trainer-disks)"
