"""What is watched, and how: alarms, alert rules, dashboards, scrape settings.

This module and the pure ones beside it import no Pulumi: the local cloud's Prometheus reads the very same files.
The component is in `stack`.
"""

from .files import dashboard_text, rule_groups, rules_files
from .scrape import JOB, scrape_config

__all__ = ["JOB", "dashboard_text", "rule_groups", "rules_files", "scrape_config"]
