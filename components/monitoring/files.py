"""The alert rules and the dashboard as files: one place that knows where they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent


def rules_files() -> list[Path]:
    """Prometheus rule files, for `rule_files` of a Prometheus configuration."""
    return sorted((HERE / "rules").glob("*.yaml"))


def rule_groups() -> dict[str, dict[str, Any]]:
    """The parsed rule files by their name without suffix."""
    return {path.stem: yaml.safe_load(path.read_text(encoding="utf-8")) for path in rules_files()}


def dashboard_text() -> str:
    """The Grafana dashboard as JSON."""
    return (HERE / "dashboards" / "trainer.json").read_text(encoding="utf-8")
