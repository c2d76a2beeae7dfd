"""Alert rules and the dashboard: judged by Prometheus' own tool, and read only metrics that the nodes export."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from trainer.devices.reading import HARDWARE_REASONS
from trainer.obs.metrics import METRICS, series_names

from components.monitoring import dashboard_text, rule_groups, rules_files, scrape_config
from components.monitoring.alarms import group_alarms
from components.monitoring.chart_values import CHART_VERSION, chart_values

ROOT = Path(__file__).parents[2]
ALERT_TESTS = sorted((Path(__file__).parent / "alert_rules").glob("*.yaml"))
PROMETHEUS_OWN = {"up", "ALERTS"}
PROMQL_WORDS = {
    "and",
    "or",
    "unless",
    "on",
    "ignoring",
    "by",
    "without",
    "offset",
    "group_left",
    "group_right",
    "bool",
}
TARGET_LABELS = {"job", "instance", "auto_scaling_group", "instance_id", "instance_type", "zone"}


def promtool(*arguments: object) -> str:
    """Output of promtool; comes with Debian's package prometheus and with Prometheus' own releases."""
    tool = shutil.which("promtool")
    assert tool, "promtool is missing: install Debian's prometheus (make test SETUP_SYSTEM=1 does)"
    done = subprocess.run([tool, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def alerts() -> list[dict[str, Any]]:
    return [rule for file in rule_groups().values() for group in file["groups"] for rule in group["rules"]]


def metrics_in(expression: str) -> set[str]:
    """Names of the time series that a PromQL expression reads."""
    bare = re.sub(r'"[^"]*"', "", expression)
    bare = re.sub(r"label_values\((.*), *\w+\)", r"\1", bare)  # Grafana's own function
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", bare)
    bare = re.sub(r"\b(on|ignoring|by|without|group_left|group_right)\s*\([^)]*\)", "", bare)
    words = re.findall(r"\b([A-Za-z_:][\w:]*)\b(?!\s*\()", bare)
    return set(words) - PROMQL_WORDS


def labels_in(expression: str) -> Iterator[tuple[str, str]]:
    """(metric, label) for each label that a selector matches on."""
    for metric, selector in re.findall(r"([A-Za-z_:][\w:]*)\{([^}]*)\}", expression):
        for label in re.findall(r'(\w+)\s*(?:=~|!~|!=|=)\s*"', selector):
            yield metric, label


def dashboard_expressions() -> list[str]:
    board = json.loads(dashboard_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    variables = [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    return [*panels, *variables, *(annotation["expr"] for annotation in board["annotations"]["list"])]


EXPRESSIONS = [rule["expr"] for rule in alerts()] + dashboard_expressions()


def test_the_readers_of_promql_see_what_is_there() -> None:
    text = (
        'sum by (le) (rate(trainer_x_bucket{a=~"b|c"}[5m])) > on (instance) 3 * trainer_y '
        'or up{job="trainer"} offset 1h'
    )
    assert metrics_in(text) - {"1h"} == {"trainer_x_bucket", "trainer_y", "up"}
    assert list(labels_in(text)) == [("trainer_x_bucket", "a"), ("up", "job")]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_only_metrics_that_the_nodes_export_are_read(expression: str) -> None:
    assert metrics_in(expression) <= series_names() | PROMETHEUS_OWN


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_only_labels_that_the_metrics_have_are_matched(expression: str) -> None:
    for name, label in labels_in(expression):
        if name not in PROMETHEUS_OWN:
            metric = next(metric for metric in METRICS if name in metric.series())
            assert label in {*metric.labels, *TARGET_LABELS}, f"{name} has no label {label}"


def test_the_throttle_alert_matches_exactly_the_reasons_that_mean_hardware_protects_itself() -> None:
    [rule] = [rule for rule in alerts() if rule["alert"] == "TrainerGpuThrottled"]
    found = re.search(r'reason=~"([^"]+)"', rule["expr"])
    assert found and set(found[1].split("|")) == set(HARDWARE_REASONS.values())


@pytest.mark.prometheus
def test_prometheus_accepts_the_rules() -> None:
    assert "SUCCESS" in promtool("check", "rules", *rules_files())


@pytest.mark.prometheus
@pytest.mark.parametrize("file", ALERT_TESTS, ids=lambda path: path.stem)
def test_alerts_fire_on_their_faults_and_on_nothing_else(file: Path) -> None:
    assert "SUCCESS" in promtool("test", "rules", file)


def test_every_alert_is_tried_both_ways() -> None:
    tried: dict[str, set[bool]] = {}
    fires_beside_silence: set[str] = set()
    for file in ALERT_TESTS:
        for test in yaml.safe_load(file.read_text())["tests"]:
            for one in test["alert_rule_test"]:
                tried.setdefault(one["alertname"], set()).add(bool(one["exp_alerts"]))
                if 0 < len(one["exp_alerts"]) < len(test["input_series"]):
                    fires_beside_silence.add(one["alertname"])  # other series of the same test stay silent
    for rule in alerts():
        assert True in tried[rule["alert"]], f"{rule['alert']} never fires in a test"
        assert False in tried[rule["alert"]] or rule["alert"] in fires_beside_silence


def anchors() -> set[str]:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / "runbooks.md").read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_alert_and_alarm_has_a_runbook_entry_and_no_entry_is_left_over() -> None:
    wanted = {alarm.role for alarm in group_alarms("g", buys_spot=True, idle_stop_minutes=60)}
    for rule in alerts():
        anchor = rule["alert"].lower()
        assert rule["annotations"]["runbook"] == f"docs/runbooks.md#{anchor}"
        assert {"summary", "description"} <= set(rule["annotations"])
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["labels"]["service"] == "gpu-training"
        wanted.add(anchor)
    text = (ROOT / "docs" / "runbooks.md").read_text().partition("## Without an alert of its own")[0]
    entries = {heading.lower() for heading in re.findall(r"^### (.+)$", text, flags=re.MULTILINE)}
    assert entries == wanted
    assert entries <= anchors()


@pytest.mark.prometheus
def test_prometheus_accepts_the_scrape_settings_beside_the_rules(tmp_path: Path) -> None:
    settings = scrape_config(
        region="us-east-1", auto_scaling_groups=["b", "a"], metrics_port=9400, endpoint="http://127.0.0.1:1"
    )
    config = {"rule_files": [str(path) for path in rules_files()], "scrape_configs": [settings]}
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    assert "SUCCESS" in promtool("check", "config", tmp_path / "prometheus.yml")
    [discovery] = settings["ec2_sd_configs"]
    assert discovery["port"] == 9400
    assert {"name": "tag:aws:autoscaling:groupName", "values": ["a", "b"]} in discovery["filters"]
    assert {step["target_label"] for step in settings["relabel_configs"]} <= TARGET_LABELS


def test_without_an_endpoint_prometheus_asks_aws_itself() -> None:
    [discovery] = scrape_config(region="r", auto_scaling_groups=["a"], metrics_port=1)["ec2_sd_configs"]
    assert "endpoint" not in discovery


def value_paths(values: Any, prefix: str = "") -> Iterator[str]:
    """Paths of a Helm values tree; lists are not opened."""
    if isinstance(values, dict) and values:
        for key, value in values.items():
            yield from value_paths(value, f"{prefix}.{key}".lstrip("."))
    else:
        yield prefix


def test_every_value_is_one_that_the_chart_knows() -> None:
    facts = (Path(__file__).parent / "chart_value_paths.txt").read_text().splitlines()
    assert CHART_VERSION in facts[0]
    known = {line for line in facts if line and not line.startswith("#")}
    free_form = {line.removesuffix(": {}") for line in known if line.endswith(": {}")}
    values = chart_values(
        stack="s",
        region="r",
        auto_scaling_groups=["a"],
        metrics_port=1,
        retention_days=7,
        alerts_topic_arn="arn",
    )
    for path in value_paths(values):
        opened = any(path == one or path.startswith(f"{one}.") for one in free_form)
        assert opened or path in known, f"the chart has no value {path}"
    assert yaml.safe_load(values["grafana"]["dashboards"]["gpu-training"]["trainer"]["json"])["panels"]
    assert set(values["additionalPrometheusRulesMap"]) == {
        f"gpu-training-{path.stem}" for path in rules_files()
    }


def test_the_dashboard_shows_each_thing_once() -> None:
    panels = json.loads(dashboard_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells)), "two panels overlap"
    assert max(x for x, _ in cells) < 24
